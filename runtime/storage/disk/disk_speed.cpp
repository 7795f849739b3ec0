#include "runtime/storage/disk/disk_speed.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "runtime/core/philox.h"
#include "runtime/storage/disk/disk_store.h"

namespace dstrain {
namespace {

constexpr int64_t kPieces = 4;  // operations at a time
// What all of them move: enough that the queues are full, and little more, so that a measurement ends in time.
constexpr int64_t kLeastBytes = 8 << 20, kMostBytes = 256 << 20;
constexpr std::chrono::seconds kPatience{60};
constexpr double kSame = 0.98;  // speeds that differ by less are equal
constexpr int kFinalists = 3, kRounds = 3;

// Returns one tensor that fills the files whatever the block size is.
std::vector<DiskExtent> whole_files(const SwapFiles& files, const AioConfig& config) {
  const int64_t block = disk_blocks_up(config.block_size);
  return {{"speed", files.bytes_each() / block * block * files.count()}};
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Tries settings and keeps what was measured.
class Tuner {
 public:
  Tuner(const std::function<DiskSpeed(const AioConfig&)>& measure,
        const std::function<bool()>& keep_on)
      : measure_(measure), keep_on_(keep_on) {}

  // Measures the settings unless that was done. Makes them the best if they are.
  void try_once(const AioConfig& config) {
    if (std::ranges::find(tuning_.measured, config, &AioMeasurement::config) ==
        tuning_.measured.end())
      again(config);
    for (const AioMeasurement& m : tuning_.measured)
      if (m.speed.both() > tuning_.best.speed.both()) tuning_.best = m;
  }

  // Decides between the fastest ones and `given` by medians. Returns nothing if the tuning was stopped.
  std::optional<AioTuning> decide(const AioConfig& given) {
    std::vector<AioMeasurement> fastest = tuning_.measured;
    std::ranges::stable_sort(
        fastest, [](const auto& a, const auto& b) { return a.speed.both() > b.speed.both(); });
    fastest.resize(std::min<size_t>(fastest.size(), kFinalists));
    if (std::ranges::find(fastest, given, &AioMeasurement::config) == fastest.end())
      fastest.push_back({given, {}});
    const size_t before = tuning_.measured.size();  // the fastest ones were also the luckiest
    for (int round = 0; round < kRounds; ++round)
      for (const AioMeasurement& m : fastest) again(m.config);
    if (stopped_) return std::nullopt;
    double most = 0;
    for (AioMeasurement& m : fastest) {
      m.speed = median(m.config, before);
      most = std::max(most, m.speed.both());
      if (m.config == given) tuning_.given = m;
    }
    std::erase_if(fastest, [most](const auto& m) { return m.speed.both() < kSame * most; });
    tuning_.best = *std::ranges::min_element(fastest, {}, [](const AioMeasurement& m) {
      return m.config.block_size * m.config.queue_depth * m.config.intra_op_parallelism;
    });
    return std::move(tuning_);
  }

  const AioConfig& best() const { return tuning_.best.config; }

 private:
  void again(const AioConfig& config) {
    stopped_ = stopped_ || !keep_on_();
    if (!stopped_) tuning_.measured.push_back({config, measure_(config)});
    stopped_ = stopped_ || !keep_on_();
  }

  // Returns the median of the measurements of these settings from the `first` on.
  DiskSpeed median(const AioConfig& config, size_t first) const {
    std::vector<double> reads, writes;
    for (const AioMeasurement& m : std::span(tuning_.measured).subspan(first)) {
      if (m.config != config) continue;
      reads.push_back(m.speed.read);
      writes.push_back(m.speed.write);
    }
    return {median_of(reads), median_of(writes)};
  }

  const std::function<DiskSpeed(const AioConfig&)>& measure_;
  const std::function<bool()>& keep_on_;
  AioTuning tuning_;
  bool stopped_ = false;
};

}  // namespace

DiskSpeedProbe::DiskSpeedProbe(const SwapFiles& files, double most_seconds,
                               std::function<bool()> keep_on)
    : files_(files), most_seconds_(most_seconds), keep_on_(std::move(keep_on)) {
  const int64_t bytes = std::min(files.bytes_each() * files.count(), kMostBytes);
  memory_ = Memory::anonymous(bytes, "the memory that drives are measured with");
  for (int64_t i = 0; i < bytes / 8; ++i) {  // random bytes: some drives compress
    const uint64_t word = mix64(static_cast<uint64_t>(i));
    std::memcpy(memory_.data() + i * 8, &word, 8);
  }
  // The first write of reserved blocks is slower than later ones.
  constexpr double all = 1e9;
  move({.block_size = 1 << 20, .queue_depth = 32}, true, all);
}

DiskSpeed DiskSpeedProbe::measure(const AioConfig& config) const {
  const double write = move(config, true, most_seconds_);
  return {.read = move(config, false, most_seconds_), .write = write};
}

double DiskSpeedProbe::move(const AioConfig& config, bool writes, double most_seconds) const {
  const auto extents = whole_files(files_, config);
  const int64_t total = extents.front().bytes;
  DiskStore store(files_, extents, config, kPatience);
  const int64_t queued = config.block_size * config.queue_depth * config.intra_op_parallelism;
  const int64_t at_a_time =
      std::min(memory_.bytes(), std::clamp(2 * queued, kLeastBytes, kMostBytes));
  const int64_t piece = disk_blocks_up(std::max<int64_t>(at_a_time / kPieces, 1));
  const int64_t places = std::max<int64_t>(at_a_time / piece, 1);  // of memory, used in turn
  std::vector<DiskStore::Ticket> tickets;
  const auto begin = DiskClock::now();
  const auto seconds = [begin] {
    return std::chrono::duration<double>(DiskClock::now() - begin).count();
  };
  int64_t moved = 0;
  for (int64_t at = 0; at < total && keep_on_() && seconds() < most_seconds; at += piece) {
    const auto count = static_cast<int64_t>(tickets.size());
    if (count >= places) tickets[static_cast<size_t>(count - places)].wait();
    std::byte* const memory = memory_.data() + count % places * piece;
    const int64_t bytes = std::min(piece, total - at);
    tickets.push_back(writes ? store.write(0, at, memory, bytes)
                             : store.read(0, at, memory, bytes));
    moved += bytes;
  }
  for (const DiskStore::Ticket& ticket : tickets) ticket.wait();
  return static_cast<double>(moved) / seconds();
}

std::optional<AioTuning> tune_aio(const AioChoices& choices, const AioConfig& given,
                                  const std::function<DiskSpeed(const AioConfig&)>& measure,
                                  const std::function<bool()>& keep_on) {
  Tuner tuner(measure, keep_on);
  for (const int64_t block : choices.block_sizes)
    for (const int64_t depth : choices.queue_depths)
      tuner.try_once({.block_size = block,
                      .queue_depth = depth,
                      .intra_op_parallelism = choices.threads.front()});
  for (const int64_t threads : choices.threads) {
    AioConfig config = tuner.best();
    config.intra_op_parallelism = threads;
    tuner.try_once(config);
  }
  AioConfig other = tuner.best();
  other.single_submit = true;
  tuner.try_once(other);
  other = tuner.best();
  other.overlap_events = false;
  tuner.try_once(other);
  return tuner.decide(given);
}

}  // namespace dstrain
