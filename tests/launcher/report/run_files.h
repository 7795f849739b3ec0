// Output directories of runs as a test makes them up.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/report/page/page.h"
#include "launcher/report/page/plots.h"
#include "launcher/report/record/run_record.h"
#include "tests/support/temp_dir.h"

namespace dstrain::test {

// Returns a line of metrics.jsonl; `loss` as it is written there.
inline std::string step_line(int64_t step, const std::string& loss) {
  return fmt::format(
      R"({{"step":{},"loss":{},"lr":0.001,"grad_norm":1.5,"loss_scale":1,"skipped":false,"tokens":100,)"
      R"("samples_per_second":20.5,"step_ms":50,"peak_bytes":27791424,"comm_bytes":3753984}})"
      "\n",
      step, loss);
}

inline std::string step_line(int64_t step, double loss) {
  return step_line(step, fmt::format("{}", loss));
}

// A folder for output directories.
struct Runs {
  // Makes the output directory `name` with these metrics.
  std::string make(const std::string& name, const std::string& metrics,
                   const std::string& config = "") const {
    std::filesystem::create_directories(folder / name);
    folder.write(name + "/metrics.jsonl", metrics);
    if (!config.empty()) folder.write(name + "/resolved_config.json", config);
    return folder / name;
  }
  // Returns the page of runs.
  static std::string page(const std::vector<std::string>& directories) {
    const auto runs = report::read_runs(directories, report::columns_for(directories.size()));
    return report::page_html(runs, report::plots_of(runs), report::PageUse::file);
  }
  TempDir folder;
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace dstrain::test
