// Finds the endpoint as a machine outside a virtual network does: the address of DHCP option 245,
// read from dhclient's lease, on port 80 and then on port 8080; the first that answers with Events
// is it. Also asks as a program does that gives UriBuilder the query as a part of the path, where
// the question mark is escaped. Prints what came of both.
using System;
using System.IO;
using System.Linq;
using System.Net;
using System.Text.RegularExpressions;

static class Discovery
{
    const string Path = "/metadata/scheduledEvents", Query = "api-version=2017-08-01";

    static IPAddress OfferedAddress(string directory)
    {
        var leases = string.Concat(Directory.GetFiles(directory, "*.leases").Select(File.ReadAllText));
        var option = Regex.Matches(leases, @"option (?:unknown-245|forewarn-endpoint) ([^;]+);").Cast<Match>().Last();
        var value = option.Groups[1].Value;
        return value.Contains(":")
            ? new IPAddress(value.Split(':').Select(octet => Convert.ToByte(octet, 16)).ToArray())
            : IPAddress.Parse(value);
    }

    static string Get(Uri uri)
    {
        using (var client = new WebClient { Proxy = null })
        {
            client.Headers.Add("Metadata", "true");
            return client.DownloadString(uri);
        }
    }

    static Uri FirstValid(IPAddress address)
    {
        foreach (var port in new[] { 80, 8080 })
        {
            var uri = new UriBuilder("http", address.ToString(), port, Path, "?" + Query).Uri;
            try
            {
                if (Get(uri).Contains("\"Events\"")) return uri;
            }
            catch (WebException refused)
            {
                Console.WriteLine("{0}: {1}", uri, refused.Status);
            }
        }
        return null;
    }

    static void Main(string[] arguments)
    {
        var address = OfferedAddress(arguments[0]);
        Console.WriteLine("found {0}", FirstValid(address));
        var builder = new UriBuilder { Scheme = "http", Host = address.ToString(), Port = 8080 };
        builder.Path = Path + "?" + Query;
        try
        {
            Console.WriteLine("escaped {0}", Get(builder.Uri));
        }
        catch (WebException refused)
        {
            var status = (int)((HttpWebResponse)refused.Response).StatusCode;
            Console.WriteLine("escaped {0} {1}", builder.Uri.AbsoluteUri, status);
        }
    }
}
