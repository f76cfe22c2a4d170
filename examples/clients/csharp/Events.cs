// Asking for Scheduled Events and approving them. What to do about one is in Watcher.cs.

using System;
using System.Collections.Generic;
using System.IO;
using System.Net.Http;
using System.Runtime.Serialization;
using System.Runtime.Serialization.Json;
using System.Text;
using System.Threading.Tasks;

/// <summary>One entry of the document.</summary>
[DataContract]
public sealed class ScheduledEvent
{
    [DataMember] public string EventId;
    [DataMember] public string EventType; // Freeze, Reboot, Redeploy, Preempt or Terminate
    [DataMember] public string EventStatus; // Scheduled, then Started; an event that is over is gone
    [DataMember] public List<string> Resources;
    [DataMember] public string NotBefore; // RFC 1123, empty once it has started
    [DataMember] public string Description;
    [DataMember] public string EventSource; // Platform or User
    [DataMember] public int DurationInSeconds; // -1: not known
}

[DataContract]
sealed class Document
{
    [DataMember] public List<ScheduledEvent> Events;
}

/// <summary>An answer that cannot be used. The service has bad days: ask again.</summary>
public sealed class NoAnswer : Exception
{
    public NoAnswer(string why, Exception cause = null) : base(why, cause) { }
}

/// <summary>Asks as the machine that it runs in.</summary>
public sealed class EventsClient : IDisposable
{
    public const string Azure = "http://169.254.169.254";
    const string Events = "/metadata/scheduledevents?api-version=2020-07-01";
    const string Name = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";

    readonly HttpClient http;

    public EventsClient(string address = Azure)
    {
        // No proxy: the endpoint is for the machine itself and refuses what was forwarded.
        http = new HttpClient(new HttpClientHandler { UseProxy = false })
        {
            BaseAddress = new Uri(address),
            Timeout = TimeSpan.FromSeconds(5), // for one answer
            MaxResponseContentBufferSize = 1 << 20,
        };
        http.DefaultRequestHeaders.Add("Metadata", "true");
    }

    /// <summary>What the events call this machine.</summary>
    public async Task<string> NameAsync()
    {
        return Encoding.UTF8.GetString(await AskAsync(HttpMethod.Get, Name));
    }

    /// <summary>What stands in the document now. An answer that is no document is an exception,
    /// never "no events".</summary>
    public async Task<List<ScheduledEvent>> EventsAsync()
    {
        var answer = await AskAsync(HttpMethod.Get, Events);
        Document document;
        try
        {
            document = Json.Read<Document>(answer);
        }
        catch (SerializationException error)
        {
            throw new NoAnswer("no document: " + error.Message, error);
        }
        return document?.Events ?? throw new NoAnswer("no document: there are no Events in it");
    }

    /// <summary>Says that an event may start now. It cannot be taken back.</summary>
    public Task ApproveAsync(string id)
    {
        return AskAsync(HttpMethod.Post, Events, "{\"StartRequests\":[{\"EventId\":\"" + id + "\"}]}");
    }

    public void Dispose()
    {
        http.Dispose();
    }

    async Task<byte[]> AskAsync(HttpMethod method, string target, string body = null)
    {
        try
        {
            using (var request = new HttpRequestMessage(method, target))
            {
                if (body != null) request.Content = new StringContent(body, Encoding.UTF8, "application/json");
                using (var response = await http.SendAsync(request))
                {
                    if ((int)response.StatusCode != 200)
                        throw new NoAnswer(method + " " + target + ": " + (int)response.StatusCode);
                    return await response.Content.ReadAsByteArrayAsync();
                }
            }
        }
        catch (Exception error) when (error is HttpRequestException || error is IOException || error is OperationCanceledException)
        {
            throw new NoAnswer(method + " " + target + ": " + error.Message, error);
        }
    }
}

/// <summary>JSON by the serialiser that every .NET has.</summary>
public static class Json
{
    public static T Read<T>(byte[] text)
    {
        using (var stream = new MemoryStream(text))
            return (T)new DataContractJsonSerializer(typeof(T)).ReadObject(stream);
    }
}
