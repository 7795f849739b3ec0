#include "launcher/report/watch/watched_page.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "launcher/report/chart/markup.h"
#include "launcher/report/page/page.h"
#include "launcher/report/page/plots.h"
#include "launcher/report/record/run_record.h"
#include "runtime/config/config_request.h"
#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain::report {
namespace {

constexpr int64_t kLeastAge = 1'000'000'000;
constexpr int64_t kAgeOfEffort = 4;  // times the time that making takes

// Returns a text that changes when the files change of which a page is made.
std::string files_of(const std::string& run) {
  std::string text;
  for (const char* const name : {"", "metrics.jsonl", kResolvedConfig.data()}) {
    struct stat status {};
    if (::stat((std::filesystem::path(run) / name).c_str(), &status) != 0) continue;
    text += fmt::format("{} {} {}.{};", name, status.st_size, status.st_mtim.tv_sec,
                        status.st_mtim.tv_nsec);
  }
  return text + (is_used_by_a_run(run) ? "running" : "");
}

std::string page_of(const std::string& run) {
  const std::vector<RunRecord> runs = read_runs({run}, columns_for(1));
  return page_html(runs, plots_of(runs), PageUse::served);
}

std::string problem_page(const std::string& problem) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>dstrain "
         "watch</title>"
         "<script src=\"" +
         std::string(kRefreshPath) + "\" defer></script></head><body><main><p>" + escaped(problem) +
         "</p></main></body></html>\n";
}

}  // namespace

WatchedPage::WatchedPage(std::string run)
    : run_(std::move(run)), started_ns_(monotonic_ns()), files_(files_of(run_)) {
  const std::string text = page_of(run_);
  made_ns_ = monotonic_ns();
  took_ns_ = made_ns_ - started_ns_;
  state_ = std::make_shared<PageState>(PageState{text, fmt::format("\"{:x}-0\"", started_ns_)});
}

void WatchedPage::make() {
  std::string text;
  try {
    text = page_of(run_);
  } catch (const UserError& e) {
    text = problem_page(e.what());
  }
  if (text == state_->text) return;
  state_ = std::make_shared<PageState>(
      PageState{std::move(text), fmt::format("\"{:x}-{}\"", started_ns_, ++versions_)});
}

std::shared_ptr<const PageState> WatchedPage::state() {
  const int64_t now = monotonic_ns();
  if (now - made_ns_ < std::max(kLeastAge, kAgeOfEffort * took_ns_)) return state_;
  std::string files = files_of(run_);
  if (files != files_) {
    files_ = std::move(files);
    make();
    took_ns_ = monotonic_ns() - now;
  }
  made_ns_ = monotonic_ns();
  return state_;
}

}  // namespace dstrain::report
