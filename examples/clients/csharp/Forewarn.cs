// A forewarn of the tests' own, as a process on a virtual clock. Copy this file: it knows nothing
// of the application.

using System;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Net.Http;
using System.Runtime.Serialization;
using System.Runtime.Serialization.Json;
using System.Text;

/// <summary>The service with the sample fleet of forewarn dev, and an operator's hands.</summary>
public sealed class Forewarn : IDisposable
{
    [DataContract] sealed class Ready { [DataMember] public string control; }
    [DataContract] sealed class Machine { [DataMember] public string metadata_url; }
    [DataContract] sealed class Clock { [DataMember] public string now; }

    readonly Process process;
    readonly string room = Path.Combine(Path.GetTempPath(), "forewarn-" + Guid.NewGuid());
    readonly HttpClient control;

    /// <summary>Returns when the service is ready.</summary>
    public Forewarn()
    {
        Directory.CreateDirectory(room);
        var words = "dev --clock virtual --metadata 127.0.0.1:0 --control 127.0.0.1:0";
        var start = new ProcessStartInfo("forewarn", words)
        {
            UseShellExecute = false,
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
        };
        start.EnvironmentVariables["XDG_RUNTIME_DIR"] = room; // not the one you may have running
        process = Process.Start(start);
        string line;
        while ((line = process.StandardOutput.ReadLine()) != null)
        {
            if (!line.StartsWith("ready ", StringComparison.Ordinal)) continue;
            var handler = new HttpClientHandler { UseProxy = false };
            control = new HttpClient(handler) { BaseAddress = new Uri(Parse<Ready>(line.Substring(6)).control) };
            return;
        }
        throw new InvalidOperationException("forewarn has ended before it was ready");
    }

    public void Dispose()
    {
        process.Kill(); // it keeps nothing
        process.WaitForExit();
        Directory.Delete(room, true);
    }

    /// <summary>Where to ask as a machine.</summary>
    public string Url(string machine)
    {
        return Get<Machine>("/v1/machines/" + machine).metadata_url;
    }

    /// <summary>Winds the clock, and waits at every change until whoever polls has seen it.</summary>
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

    /// <summary>What is refused says what would have been right.</summary>
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
