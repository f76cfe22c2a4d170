// Following the events of one machine: a Freeze is sat out, everything else is prepared for and
// approved. How it is asked is in Events.cs.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;

public sealed class Watcher
{
    readonly EventsClient client;
    readonly Action<ScheduledEvent> prepare;
    readonly Action<string> say;
    readonly Dictionary<string, ScheduledEvent> seen = new Dictionary<string, ScheduledEvent>();
    readonly HashSet<string> approved = new HashSet<string>();
    string machine;

    /// <param name="client">asks as this machine</param>
    /// <param name="prepare">lets go of the work; the event is approved when it returns</param>
    /// <param name="say">is told what becomes of events, one line each</param>
    public Watcher(EventsClient client, Action<ScheduledEvent> prepare, Action<string> say)
    {
        this.client = client;
        this.prepare = prepare;
        this.say = say;
    }

    /// <summary>Asks once and does what is to be done. After NoAnswer it can simply be called again.</summary>
    public async Task LookAsync()
    {
        machine = machine ?? await client.NameAsync();
        var document = await client.EventsAsync();
        var ours = document.Where(one => one.Resources.Contains(machine)).ToList();
        foreach (var one in ours)
        {
            Notice(one);
            await ApproveAsync(one);
        }
        foreach (var gone in seen.Values.Where(one => ours.All(here => here.EventId != one.EventId)).ToList())
        {
            Tell(gone, "gone"); // finished or withdrawn: they look the same
            seen.Remove(gone.EventId);
            approved.Remove(gone.EventId);
        }
    }

    /// <summary>Looks every so often until it is cancelled. What goes wrong is told and tried again.</summary>
    public async Task WatchAsync(TimeSpan every, CancellationToken end)
    {
        while (!end.IsCancellationRequested)
        {
            try
            {
                await LookAsync();
            }
            catch (NoAnswer error)
            {
                Console.Error.WriteLine("asking again: " + error.Message);
            }
            await Task.WhenAny(Task.Delay(every, end)); // which ends at once when cancelled, without a throw
        }
    }

    void Notice(ScheduledEvent one)
    {
        if (seen.TryGetValue(one.EventId, out var before) && before.EventStatus == one.EventStatus) return;
        Tell(one, one.EventStatus);
        seen[one.EventId] = one;
    }

    async Task ApproveAsync(ScheduledEvent one)
    {
        if (one.EventStatus != "Scheduled" || one.EventType == "Freeze" || approved.Contains(one.EventId)) return;
        prepare(one);
        await client.ApproveAsync(one.EventId);
        approved.Add(one.EventId);
        Tell(one, "approved");
    }

    void Tell(ScheduledEvent one, string became)
    {
        say(machine + ": " + one.EventType + " " + became);
    }
}
