// An application that prepares for maintenance.
//
//   Drain.exe [--every SECONDS] [--once]

using System;
using System.Globalization;
using System.Threading;

public static class Drain
{
    public static int Main(string[] arguments)
    {
        var every = Array.IndexOf(arguments, "--every");
        var seconds = every < 0 ? 1 : double.Parse(arguments[every + 1], CultureInfo.InvariantCulture);
        var address = Environment.GetEnvironmentVariable("FOREWARN_METADATA");
        if (string.IsNullOrEmpty(address)) address = EventsClient.Azure;
        using (var client = new EventsClient(address))
        using (var end = new CancellationTokenSource())
        {
            Console.CancelKeyPress += (_, pressed) => { pressed.Cancel = true; end.Cancel(); };
            Action<ScheduledEvent> prepare = _ => { }; // stop the work of your application here
            var watcher = new Watcher(client, prepare, Console.WriteLine);
            try
            {
                if (Array.IndexOf(arguments, "--once") < 0)
                    watcher.WatchAsync(TimeSpan.FromSeconds(seconds), end.Token).GetAwaiter().GetResult();
                else
                    watcher.PollAsync().GetAwaiter().GetResult();
            }
            catch (NoAnswer error)
            {
                Console.Error.WriteLine(error.Message);
                return 1;
            }
            return 0;
        }
    }
}
