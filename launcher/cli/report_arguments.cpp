#include "launcher/cli/report_arguments.h"

#include "launcher/cli/command_line.h"
#include "launcher/cli/headings.h"
#include "launcher/cli/option_readers.h"
#include "launcher/connection/network.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {

Arguments parse_report(const std::vector<std::string>& words) {
  ReportArguments a;
  CommandLine line(
      "report",
      "Writes an HTML page of RUN, the output directory of a run: its curves, its "
      "speed and memory, and its settings with their origins. Several: their curves "
      "in the same pictures, and where their settings differ. The page needs no "
      "network; each picture is also a file of its own (SVG) in the folder beside it.");
  line.example("dstrain report runs/ds_config", "runs/ds_config/report.html");
  line.example("dstrain report runs/ds_config runs/ds_config-2 --output both.html",
               "two runs in one page");
  line.example("dstrain report runs/ds_config --output /tmp/page.html",
               "a page elsewhere, and /tmp/page_plots");
  line.operands("RUN...", a.runs);
  line.group(heading::kWritten);
  line.option("--output", "FILE.html",
              "the page (report.html in the run's directory; of several runs in this one); its "
              "pictures are in FILE_plots",
              text(a.output));
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  require("report", "RUN", !a.runs.empty());
  return a;
}

Arguments parse_compare(const std::vector<std::string>& words) {
  CompareArguments a;
  CommandLine line("compare",
                   "Prints a table of runs by their output directories: losses, speed, memory, and "
                   "the settings in which they differ.");
  line.example("dstrain compare runs/ds_config runs/ds_config-2", "for a reader");
  line.example("dstrain compare runs/a runs/b runs/c", "three runs");
  line.example("dstrain compare runs/ds_config runs/ds_config-2 --json", "for a program");
  line.operands("RUN...", a.runs);
  line.group(heading::kPrinting);
  line.flag("--json", "print JSON", a.json);
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  require("compare", "RUN RUN...", a.runs.size() >= 2);
  return a;
}

Arguments parse_watch(const std::vector<std::string>& words) {
  WatchArguments a;
  std::vector<std::string> runs;
  CommandLine line("watch",
                   "Serves the page of RUN, the output directory of a run, to browsers on this "
                   "machine while the run goes on. The page refreshes itself. Ctrl-C ends it.");
  line.example("dstrain watch runs/ds_config", "at a free port, which it prints");
  line.example("dstrain watch runs/ds_config --port 8123", "at a port of your choice");
  line.example("dstrain watch runs/ds_config-2 --port 8124", "another run at the same time");
  line.operands("RUN", runs);
  line.group("Network");
  line.option("--port", "N", "the TCP port on 127.0.0.1 (a free one)",
              integer(a.port, 1, kLastPort));
  if (const auto help = line.parse(words)) return HelpArguments{*help};
  require("watch", "RUN", !runs.empty());
  if (runs.size() > 1)
    fail_user("dstrain watch takes one RUN, got '{}' and '{}'", printable(runs[0]),
              printable(runs[1]));
  text(a.run)("RUN", runs.front());
  return a;
}

}  // namespace dstrain
