// dstrain report: a page of runs, and its pictures as files.
#include <fmt/format.h>

#include <filesystem>

#include "launcher/commands/commands.h"
#include "launcher/process/failure.h"
#include "launcher/report/page/page.h"
#include "launcher/report/page/plots.h"
#include "launcher/report/record/run_record.h"
#include "runtime/config/text.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/text.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Returns FILE_plots for FILE.html.
std::string plot_folder(const std::string& page) {
  fs::path folder = page;
  const std::string extension = lower_case(folder.extension().string());
  if (extension == ".html" || extension == ".htm") folder.replace_extension();
  return folder.string() + "_plots";
}

}  // namespace

int run_report(const ReportArguments& arguments) {
  const std::vector<report::RunRecord> runs =
      report::read_runs(arguments.runs, report::columns_for(arguments.runs.size()));
  std::string page = arguments.output;
  if (page.empty())
    page = runs.size() == 1 ? (fs::path(runs.front().directory) / "report.html").string()
                            : "report.html";
  const std::vector<report::PlotSection> sections = report::plots_of(runs);
  const std::string text = report::page_html(runs, sections, report::PageUse::file);
  if (const std::string parent = fs::path(page).parent_path().string(); !parent.empty())
    make_directory(parent);
  write_file(file_to_replace(page), text);
  const std::string folder = plot_folder(page);
  int64_t files = 0;
  const auto write_plot = [&](const report::Plot& plot) {
    if (files++ == 0) make_directory(folder);
    write_file(fmt::format("{}/{}.svg", folder, plot.id), report::plot_file(plot));
  };
  for (const report::PlotSection& section : sections)
    for (const report::Plot& plot : section.plots) {
      write_plot(plot);
      if (plot.log_twin) write_plot(report::log_twin_of(plot));
    }
  print_result(fmt::format(
      "{}: a page of {}, {}{}\n", page, counted(static_cast<int64_t>(runs.size()), "run"),
      bytes_text(static_cast<double>(text.size())),
      files > 0 ? fmt::format("; {} in {}", counted(files, "picture"), folder) : ""));
  return 0;
}

}  // namespace dstrain
