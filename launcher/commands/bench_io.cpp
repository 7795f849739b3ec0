// dstrain bench-io: measures drives with different settings, and prints the best as a section aio.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "launcher/cli/option_readers.h"
#include "launcher/commands/commands.h"
#include "launcher/process/failure.h"
#include "launcher/process/stop_signals.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/storage/disk/disk_layout.h"
#include "runtime/storage/disk/disk_speed.h"

namespace dstrain {
namespace {

using nlohmann::ordered_json;

constexpr double kGiga = 1e9;
// The bytes of each parameter on disk: the fp32 master weight and Adam's two moments.
constexpr double kAdamBytes = 12;

// Returns the settings of section aio in a configuration. What else may be wrong with the file does not matter.
AioConfig aio_of(const ConfigRequest& request) {
  const LoadedConfig loaded = check_config(request);
  for (const Verdict& v : loaded.verdicts)
    if (v.key.starts_with("aio.") && (v.state == State::error || v.state == State::unknown))
      fail_user("{}: {}: {}", v.where, v.key, v.message);
  return loaded.job.aio;
}

AioChoices choices_of(const BenchIoArguments& arguments) {
  AioChoices choices;
  if (arguments.block_sizes) choices.block_sizes = *arguments.block_sizes;
  if (arguments.queue_depths) choices.queue_depths = *arguments.queue_depths;
  if (arguments.threads) choices.threads = *arguments.threads;
  return choices;
}

void check_input(const BenchIoArguments& arguments, const AioChoices& choices,
                 const AioConfig& given) {
  for (const std::string& directory : arguments.directories) {
    std::error_code none;
    if (!std::filesystem::is_directory(directory, none))
      fail_user("{}: expected a directory on the drive to measure, found {}", directory,
                std::filesystem::exists(directory, none) ? "a file" : "nothing");
  }
  const auto drives = static_cast<int64_t>(arguments.directories.size());
  const int64_t least = drives * std::max(choices.block_sizes.back(), given.block_size);
  if (arguments.bytes < least)
    fail_user("--size: expected at least {} bytes, the largest block size on each drive, got {}",
              least, arguments.bytes);
}

ordered_json section_json(const AioConfig& c) {
  return {{"block_size", c.block_size},
          {"queue_depth", c.queue_depth},
          {"intra_op_parallelism", c.intra_op_parallelism},
          {"single_submit", c.single_submit},
          {"overlap_events", c.overlap_events}};
}

ordered_json measurement_json(const AioMeasurement& m) {
  ordered_json object = section_json(m.config);
  object["read_bytes_per_second"] = m.speed.read;
  object["write_bytes_per_second"] = m.speed.write;
  return object;
}

std::string row(const AioMeasurement& m) {
  const AioConfig& c = m.config;
  return fmt::format("{:>10} {:>11} {:>20} {:>13} {:>14} {:>9.3f} {:>10.3f}\n", c.block_size,
                     c.queue_depth, c.intra_op_parallelism, c.single_submit, c.overlap_events,
                     m.speed.read / kGiga, m.speed.write / kGiga);
}

constexpr const char* kHeading =
    "block_size queue_depth intra_op_parallelism single_submit overlap_events read GB/s write "
    "GB/s\n";

// The time that moving Adam's state of a model takes.
struct SwapTime {
  double parameters, bytes, read_seconds, write_seconds;
};

std::vector<SwapTime> swap_times(const BenchIoArguments& arguments, const DiskSpeed& speed) {
  std::vector<SwapTime> times;
  for (const double n : arguments.parameters ? std::vector{*arguments.parameters}
                                             : std::vector{1e9, 7e9, 13e9, 70e9})
    times.push_back({n, n * kAdamBytes, n * kAdamBytes / speed.read, n * kAdamBytes / speed.write});
  return times;
}

std::string json_of(const BenchIoArguments& arguments, const SwapFiles& files,
                    const AioTuning& tuning) {
  ordered_json result = {{"paths", arguments.directories},
                         {"bytes", files.bytes_each() * files.count()},
                         {"direct", files.direct()},
                         {"measured", ordered_json::array()}};
  for (const AioMeasurement& m : tuning.measured) result["measured"].push_back(measurement_json(m));
  result["given"] = measurement_json(tuning.given);
  result["best"] = measurement_json(tuning.best);
  result["aio"] = section_json(tuning.best.config);
  result["adam_state"] = ordered_json::array();
  for (const SwapTime& t : swap_times(arguments, tuning.best.speed))
    result["adam_state"].push_back({{"parameters", t.parameters},
                                    {"bytes", t.bytes},
                                    {"read_seconds", t.read_seconds},
                                    {"write_seconds", t.write_seconds}});
  return result.dump(2) + "\n";
}

std::string text_of(const BenchIoArguments& arguments, const AioTuning& tuning) {
  std::string text = fmt::format(
      "\nmedians: read {:.3f} GB/s, write {:.3f} GB/s with these settings, {:.3f} and {:.3f} with "
      "{}\n\n\"aio\": {}\n\n"
      "Adam's state on disk, {:.0f} bytes per parameter, read and written once a step: a step "
      "takes at least\n{:>12} {:>10} {:>10} {:>10} {:>10}\n",
      tuning.best.speed.read / kGiga, tuning.best.speed.write / kGiga,
      tuning.given.speed.read / kGiga, tuning.given.speed.write / kGiga,
      arguments.request.path.empty() ? "DeepSpeed's defaults"
                                     : "those of " + arguments.request.path,
      section_json(tuning.best.config).dump(2), kAdamBytes, "parameters", "bytes", "read s",
      "write s", "both s");
  for (const SwapTime& t : swap_times(arguments, tuning.best.speed))
    text += fmt::format("{:>12.3g} {:>10} {:>10.4g} {:>10.4g} {:>10.4g}\n", t.parameters,
                        bytes_text(t.bytes), t.read_seconds, t.write_seconds,
                        t.read_seconds + t.write_seconds);
  return text;
}

}  // namespace

int run_bench_io(const BenchIoArguments& arguments) {
  for (const std::string& directory : arguments.directories) require_utf8("PATH", directory);
  const AioConfig given = arguments.request.path.empty() ? AioConfig{} : aio_of(arguments.request);
  const AioChoices choices = choices_of(arguments);
  check_input(arguments, choices, given);
  // The first signal ends the measurements after the present one; the second one ends the process.
  const RankBoard board = RankBoard::create(1);
  const StopSignals signals(board, StopSignals::Note::none, StopSignals::Second::ends_process);
  const auto keep_on = [&board] { return board.stop_request() == 0; };
  IoCalls calls;
  const auto drives = static_cast<int64_t>(arguments.directories.size());
  const SwapFiles files(arguments.directories, disk_blocks_up(arguments.bytes / drives), calls);
  if (!arguments.json)
    print_result(fmt::format("{} in {}, {}\n{}",
                             bytes_text(static_cast<double>(files.bytes_each() * drives)),
                             fmt::join(arguments.directories, " and "),
                             files.direct() ? "direct I/O" : "through the page cache", kHeading));
  const DiskSpeedProbe probe(files, arguments.seconds, keep_on);
  const auto measure = [&](const AioConfig& config) {
    const DiskSpeed speed = probe.measure(config);
    if (!arguments.json && keep_on()) print_result(row({config, speed}));
    return speed;
  };
  const auto tuning = tune_aio(choices, given, measure, keep_on);
  if (!tuning) return 128 + board.stop_request();
  print_result(arguments.json ? json_of(arguments, files, *tuning) : text_of(arguments, *tuning));
  return 0;
}

}  // namespace dstrain
