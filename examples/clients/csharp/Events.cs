// A client of Scheduled Events: it reads the document and approves events. Watcher.cs uses it.

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
    [DataMember] public string EventStatus; // Scheduled, then Started; an event that is over is not listed
    [DataMember] public List<string> Resources;
    [DataMember] public string NotBefore; // RFC 1123, empty once it has started
    [DataMember] public string Description;
    [DataMember] public string EventSource; // Platform or User
    [DataMember] public int DurationInSeconds; // -1: unknown
}

[DataContract]
sealed class Document
{
    [DataMember] public List<ScheduledEvent> Events;
}

/// <summary>There was no usable answer. Try again later.</summary>
public sealed class NoAnswer : Exception
{
    public NoAnswer(string message, Exception cause = null) : base(message, cause) { }
}

/// <summary>Sends requests as the machine that it runs in.</summary>
public sealed class EventsClient : IDisposable
{
    public const string Azure = "http://169.254.169.254";
    const string Events = "/metadata/scheduledevents?api-version=2020-07-01";
    const string Name = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";

    readonly HttpClient http;

    public EventsClient(string address = Azure)
    {
        // No proxy: the endpoint is only for the machine itself and refuses forwarded requests.
        http = new HttpClient(new HttpClientHandler { UseProxy = false })
        {
            BaseAddress = new Uri(address),
            Timeout = TimeSpan.FromSeconds(5), // for one answer
            MaxResponseContentBufferSize = 1 << 20,
        };
        http.DefaultRequestHeaders.Add("Metadata", "true");
    }

    /// <summary>Returns the name of this machine in events.</summary>
    public async Task<string> NameAsync()
    {
        return Encoding.UTF8.GetString(await SendAsync(HttpMethod.Get, Name));
    }

    /// <summary>Returns the events in the current document. An answer that is not a document is an
    /// exception, never "no events".</summary>
    public async Task<List<ScheduledEvent>> EventsAsync()
    {
        var answer = await SendAsync(HttpMethod.Get, Events);
        Document document;
        try
        {
            document = Json.Read<Document>(answer);
        }
        catch (Exception error) // which one the serializer throws depends on the text and on the .NET
        {
            throw new NoAnswer("not a document: " + error.Message, error);
        }
        return document?.Events ?? throw new NoAnswer("not a document: it has no Events");
    }

    /// <summary>Allows an event to start now. An approval cannot be taken back.</summary>
    public Task ApproveAsync(string id)
    {
        return SendAsync(HttpMethod.Post, Events, "{\"StartRequests\":[{\"EventId\":\"" + id + "\"}]}");
    }

    public void Dispose()
    {
        http.Dispose();
    }

    async Task<byte[]> SendAsync(HttpMethod method, string target, string body = null)
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

/// <summary>Reads JSON with the serializer that every .NET has.</summary>
public static class Json
{
    public static T Read<T>(byte[] text)
    {
        using (var stream = new MemoryStream(text))
            return (T)new DataContractJsonSerializer(typeof(T)).ReadObject(stream);
    }
}
