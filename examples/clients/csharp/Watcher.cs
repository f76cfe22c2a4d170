// Follows the events of one machine: it ignores a Freeze, and prepares for and approves every other
// event. The requests are in Events.cs.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;

public sealed class Watcher
{
    readonly EventsClient client;
    readonly Action<ScheduledEvent> prepare;
    readonly Action<string> log;
    readonly Dictionary<string, ScheduledEvent> seen = new Dictionary<string, ScheduledEvent>();
    readonly HashSet<string> approved = new HashSet<string>();
    string machine;

    /// <param name="client">sends requests as this machine</param>
    /// <param name="prepare">stops the work; the event is approved when it returns</param>
    /// <param name="log">is called with a line for every change of an event</param>
    public Watcher(EventsClient client, Action<ScheduledEvent> prepare, Action<string> log)
    {
        this.client = client;
        this.prepare = prepare;
        this.log = log;
    }

    /// <summary>Reads the document once, prepares and approves. After NoAnswer it can be called again.</summary>
    public async Task PollAsync()
    {
        if (string.IsNullOrEmpty(machine)) machine = await client.NameAsync();
        var document = await client.EventsAsync();
        var ours = document.Where(listed => listed.Resources != null && listed.Resources.Contains(machine)).ToList();
        foreach (var scheduled in ours)
        {
            ReportStatus(scheduled);
            await ApproveAsync(scheduled);
        }
        foreach (var gone in seen.Values.Where(known => ours.All(listed => listed.EventId != known.EventId)).ToList())
        {
            Report(gone, "gone"); // finished or withdrawn: they look the same
            seen.Remove(gone.EventId);
            approved.Remove(gone.EventId);
        }
    }

    /// <summary>Polls at this interval until it is cancelled. After an error it tries again.</summary>
    public async Task WatchAsync(TimeSpan every, CancellationToken end)
    {
        while (!end.IsCancellationRequested)
        {
            try
            {
                await PollAsync();
            }
            catch (NoAnswer error)
            {
                Console.Error.WriteLine("retrying: " + error.Message);
            }
            await Task.WhenAny(Task.Delay(every, end)); // ends at once, without an exception, when cancelled
        }
    }

    void ReportStatus(ScheduledEvent scheduled)
    {
        if (seen.TryGetValue(scheduled.EventId, out var before) && before.EventStatus == scheduled.EventStatus) return;
        Report(scheduled, scheduled.EventStatus);
        seen[scheduled.EventId] = scheduled;
    }

    async Task ApproveAsync(ScheduledEvent scheduled)
    {
        if (scheduled.EventStatus != "Scheduled" || scheduled.EventType == "Freeze" || approved.Contains(scheduled.EventId)) return;
        prepare(scheduled);
        await client.ApproveAsync(scheduled.EventId);
        approved.Add(scheduled.EventId);
        Report(scheduled, "approved");
    }

    void Report(ScheduledEvent scheduled, string change)
    {
        log(machine + ": " + scheduled.EventType + " " + change);
    }
}
