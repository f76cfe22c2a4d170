// Tests of the application with real maintenance; fifteen minutes of notice pass at once. This is a
// plain program; in your project, make each of these a test of your runner.

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
                ARestartIsPreparedForAndApproved, AFreezeIsIgnored, ErrorsOfTheServiceAreSurvived,
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
            app.HasLogged("Reboot Scheduled", "Reboot approved", "Reboot Started", "Reboot gone");
        }
        Equal(1, prepared, "number of preparations");
        var course = Verdict(forewarn, "web_0");
        Equal("web_0", course.approved_by, "approved by");
        Equal(true, course.in_time, "in time");
    }

    static void AFreezeIsIgnored(Forewarn forewarn)
    {
        using (var app = new Running(forewarn, "sql-0", _ => throw new Failure("there is nothing to prepare")))
        {
            forewarn.Post("/v1/events", "{\"type\": \"Freeze\", \"machines\": [\"sql-0\"], \"duration\": 5}");
            forewarn.Play(HalfAnHour);
            app.HasLogged("Freeze Scheduled", "Freeze Started", "Freeze gone");
        }
        Equal("", Verdict(forewarn, "sql-0").approved_by, "approved by");
    }

    static void ErrorsOfTheServiceAreSurvived(Forewarn forewarn)
    {
        var rest = "\", \"machines\": [\"jumpbox\"], \"method\": \"GET\", \"times\": 1}";
        using (var app = new Running(forewarn, "jumpbox", _ => { }))
        {
            forewarn.Post("/v1/machines/jumpbox/redeploy");
            forewarn.Play(TimeSpan.FromSeconds(1));
            // The event has started, and none of these answers means that it is over.
            foreach (var kind in new[] { "reset", "truncated", "empty", "no-events" })
                forewarn.Post("/v1/faults", "{\"kind\": \"" + kind + rest);
            // The last fault skips two polls, so that the test notices a client that takes them for the end.
            forewarn.Post("/v1/faults", "{\"skip\": 2, \"kind\": \"gone" + rest);
            while (forewarn.Get<List<Fault>>("/v1/faults").Any(fault => fault.consumed < 1)) { }
            forewarn.Play(HalfAnHour);
            app.HasLogged("Redeploy Scheduled", "Redeploy approved", "Redeploy Started", "Redeploy gone");
        }
        Verdict(forewarn, "jumpbox");
    }

    /// <summary>Runs the application as a machine, until it is disposed.</summary>
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
            watcher.PollAsync().GetAwaiter().GetResult(); // a machine gets events from its first poll on
            watching = Task.Run(() => watcher.WatchAsync(TimeSpan.FromMilliseconds(20), end.Token));
        }

        public void HasLogged(params string[] expected)
        {
            end.Cancel();
            watching.GetAwaiter().GetResult();
            Equal(string.Join("\n", expected.Select(line => machine + ": " + line)), string.Join("\n", lines), "its lines");
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
    sealed class VerdictReport
    {
        [DataMember] public List<Course> courses;
        [DataMember] public List<Complaint> complaints;
    }

    /// <summary>Fails if the application did anything wrong.</summary>
    static Course Verdict(Forewarn forewarn, string machine)
    {
        var report = forewarn.Get<VerdictReport>("/v1/verdict?machine=" + machine);
        var wrong = report.complaints.Where(c => c.severity == "wrong").Select(c => c.rule + ": " + c.message);
        Equal("", string.Join("\n", wrong), "complaints");
        return report.courses.Single();
    }

    sealed class Failure : Exception
    {
        public Failure(string message) : base(message) { }
    }

    static void Equal<T>(T expected, T actual, string subject)
    {
        if (!Equals(expected, actual)) throw new Failure(subject + ": expected\n" + expected + "\nbut was\n" + actual);
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
