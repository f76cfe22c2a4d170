// Runs forewarn as a separate process on a virtual clock, for tests. Copy this file into your project:
// it does not depend on the application.

using System;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Net.Http;
using System.Runtime.Serialization;
using System.Runtime.Serialization.Json;
using System.Text;

/// <summary>A running service with the sample fleet of forewarn dev, and a client of its control API.</summary>
public sealed class Forewarn : IDisposable
{
    [DataContract] sealed class Ready { [DataMember] public string control; }
    [DataContract] sealed class Machine { [DataMember] public string metadata_url; }
    [DataContract] sealed class Clock { [DataMember] public string now; }

    readonly Process process;
    readonly string directory = Path.Combine(Path.GetTempPath(), "forewarn-" + Guid.NewGuid());
    readonly HttpClient control;

    /// <summary>Returns when the service is ready.</summary>
    public Forewarn()
    {
        Directory.CreateDirectory(directory);
        var options = "dev --clock virtual --metadata 127.0.0.1:0 --control 127.0.0.1:0";
        var start = new ProcessStartInfo("forewarn", options)
        {
            UseShellExecute = false,
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
        };
        start.EnvironmentVariables["XDG_RUNTIME_DIR"] = directory; // separate from a service that already runs
        process = Process.Start(start);
        string line;
        while ((line = process.StandardOutput.ReadLine()) != null)
        {
            if (!line.StartsWith("ready ", StringComparison.Ordinal)) continue;
            var handler = new HttpClientHandler { UseProxy = false };
            control = new HttpClient(handler) { BaseAddress = new Uri(Parse<Ready>(line.Substring(6)).control) };
            return;
        }
        throw new InvalidOperationException("forewarn ended before it was ready");
    }

    public void Dispose()
    {
        process.Kill(); // it stores nothing
        process.WaitForExit();
        Directory.Delete(directory, true);
    }

    /// <summary>Returns the address of the endpoint for a machine.</summary>
    public string Url(string machine)
    {
        return Get<Machine>("/v1/machines/" + machine).metadata_url;
    }

    /// <summary>Advances the clock, and waits at every change until the clients that poll have seen it.</summary>
    public void Play(TimeSpan length)
    {
        var now = Time(Get<Clock>("/v1/clock"));
        var to = now + length;
        var body = "{\"to\": \"" + to.ToString("yyyy-MM-ddTHH:mm:ss.ffffffZ", CultureInfo.InvariantCulture) + "\"}";
        while (now < to) now = Time(Parse<Clock>(Post("/v1/clock/play", body)));
    }

    public T Get<T>(string path)
    {
        return Parse<T>(Answer(path, control.GetAsync(path).GetAwaiter().GetResult()));
    }

    public string Post(string path, string json = null)
    {
        var body = json == null ? null : new StringContent(json, Encoding.UTF8, "application/json");
        return Answer(path, control.PostAsync(path, body).GetAwaiter().GetResult());
    }

    /// <summary>Throws if the request was refused; the message says what would have been right.</summary>
    static string Answer(string path, HttpResponseMessage response)
    {
        var text = response.Content.ReadAsStringAsync().GetAwaiter().GetResult();
        if (!response.IsSuccessStatusCode) throw new InvalidOperationException(path + ": " + text);
        return text;
    }

    static DateTime Time(Clock clock)
    {
        var styles = DateTimeStyles.AdjustToUniversal | DateTimeStyles.AssumeUniversal;
        return DateTime.Parse(clock.now, CultureInfo.InvariantCulture, styles);
    }

    static T Parse<T>(string json)
    {
        using (var stream = new MemoryStream(Encoding.UTF8.GetBytes(json)))
            return (T)new DataContractJsonSerializer(typeof(T)).ReadObject(stream);
    }
}
