// The application before real maintenance, with fifteen minutes of notice that take no time.
// A plain program; in a project of yours each of these is a test of your runner.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.Serialization;
using System.Threading;
using System.Threading.Tasks;

public static class Tests
{
    static readonly TimeSpan HalfAnHour = TimeSpan.FromMinutes(30);

    public static int Main()
    {
        using (var forewarn = new Forewarn())
        {
            var tests = new Action<Forewarn>[]
            {
                ARestartIsPreparedForAndApproved, AFreezeIsSatOut, ABadDayOfTheServiceIsSurvived,
            };
            var failed = tests.Count(test => !Passes(test, forewarn));
            Console.WriteLine("{0} passed, {1} failed", tests.Length - failed, failed);
            return failed == 0 ? 0 : 1;
        }
    }

    static void ARestartIsPreparedForAndApproved(Forewarn forewarn)
    {
        var prepared = 0;
        using (var app = new Running(forewarn, "web_0", _ => prepared++))
        {
            forewarn.Post("/v1/machines/web_0/restart");
            forewarn.Play(HalfAnHour);
            app.HasSaid("Reboot Scheduled", "Reboot approved", "Reboot Started", "Reboot gone");
        }
        Equal(1, prepared, "how often it has prepared");
        var course = Verdict(forewarn, "web_0");
        Equal("web_0", course.approved_by, "who has approved");
        Equal(true, course.in_time, "in time");
    }

    static void AFreezeIsSatOut(Forewarn forewarn)
    {
        using (var app = new Running(forewarn, "sql-0", _ => throw new Failure("there is nothing to prepare")))
        {
            forewarn.Post("/v1/events", "{\"type\": \"Freeze\", \"machines\": [\"sql-0\"], \"duration\": 5}");
            forewarn.Play(HalfAnHour);
            app.HasSaid("Freeze Scheduled", "Freeze Started", "Freeze gone");
        }
        Equal("", Verdict(forewarn, "sql-0").approved_by, "who has approved");
    }

    static void ABadDayOfTheServiceIsSurvived(Forewarn forewarn)
    {
        var rest = "\", \"machines\": [\"jumpbox\"], \"method\": \"GET\", \"times\": 1}";
        using (var app = new Running(forewarn, "jumpbox", _ => { }))
        {
            forewarn.Post("/v1/machines/jumpbox/redeploy");
            forewarn.Play(TimeSpan.FromSeconds(1));
            // It has started now, and nothing of this means that it is over.
            foreach (var kind in new[] { "reset", "truncated", "empty", "no-events" })
                forewarn.Post("/v1/faults", "{\"kind\": \"" + kind + rest);
            // The last one spares two polls, so that whoever took these for an end is found out.
            forewarn.Post("/v1/faults", "{\"skip\": 2, \"kind\": \"gone" + rest);
            while (forewarn.Get<List<Fault>>("/v1/faults").Any(fault => fault.consumed < 1)) { }
            forewarn.Play(HalfAnHour);
            app.HasSaid("Redeploy Scheduled", "Redeploy approved", "Redeploy Started", "Redeploy gone");
        }
        Verdict(forewarn, "jumpbox");
    }

    /// <summary>The application as a machine, for as long as it takes.</summary>
    sealed class Running : IDisposable
    {
        readonly string machine;
        readonly List<string> lines = new List<string>();
        readonly CancellationTokenSource end = new CancellationTokenSource();
        readonly EventsClient client;
        readonly Task watching;

        public Running(Forewarn forewarn, string machine, Action<ScheduledEvent> prepare)
        {
            this.machine = machine;
            client = new EventsClient(forewarn.Url(machine));
            var watcher = new Watcher(client, prepare, lines.Add);
            watcher.LookAsync().GetAwaiter().GetResult(); // from its first poll on it is told of maintenance
            watching = Task.Run(() => watcher.WatchAsync(TimeSpan.FromMilliseconds(20), end.Token));
        }

        public void HasSaid(params string[] wanted)
        {
            end.Cancel();
            watching.GetAwaiter().GetResult();
            Equal(string.Join("\n", wanted.Select(line => machine + ": " + line)), string.Join("\n", lines), "what it said");
        }

        public void Dispose()
        {
            end.Cancel();
            Task.WhenAny(watching).Wait();
            client.Dispose();
        }
    }

    [DataContract] sealed class Fault { [DataMember] public int consumed; }
    [DataContract] sealed class Course { [DataMember] public string approved_by; [DataMember] public bool? in_time; }

    [DataContract]
    sealed class Complaint
    {
        [DataMember] public string severity;
        [DataMember] public string rule;
        [DataMember] public string message;
    }

    [DataContract]
    sealed class Judged
    {
        [DataMember] public List<Course> courses;
        [DataMember] public List<Complaint> complaints;
    }

    /// <summary>Fails for whatever the application did wrong.</summary>
    static Course Verdict(Forewarn forewarn, string machine)
    {
        var found = forewarn.Get<Judged>("/v1/verdict?machine=" + machine);
        var wrong = found.complaints.Where(one => one.severity == "wrong").Select(one => one.rule + ": " + one.message);
        Equal("", string.Join("\n", wrong), "what was wrong");
        return found.courses.Single();
    }

    sealed class Failure : Exception
    {
        public Failure(string what) : base(what) { }
    }

    static void Equal<T>(T wanted, T found, string what)
    {
        if (!Equals(wanted, found)) throw new Failure(what + ": not\n" + wanted + "\nbut\n" + found);
    }

    static bool Passes(Action<Forewarn> test, Forewarn forewarn)
    {
        try
        {
            test(forewarn);
            Console.WriteLine("ok     " + test.Method.Name);
            return true;
        }
        catch (Exception error)
        {
            Console.WriteLine("failed " + test.Method.Name + ": " + error);
            return false;
        }
    }
}
