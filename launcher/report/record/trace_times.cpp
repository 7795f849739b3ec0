#include "launcher/report/record/trace_times.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace dstrain::report {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostRanks = 65536, kMostPlaces = 1024, kMostTracks = 64;

// The values of an event that are of use.
struct Event {
  std::string kind, name, named;  // `named`: args.name
  int64_t rank = 0, track = 0;
  double ms = 0;
  RankTime split;
};

// Adds up the events of a trace. Those of a rank are in the order of its steps, each behind the event of its step.
class TraceSums {
 public:
  void add(const Event& event) {
    if (event.kind == "M") {
      if (event.name == "thread_name" && tracks_.size() < kMostTracks)
        tracks_.try_emplace(event.track, event.named);
      return;
    }
    if (event.kind != "X" || !std::isfinite(event.ms) || event.ms < 0) return;
    const auto track = tracks_.find(event.track);
    if (track == tracks_.end()) return;
    if (!ranks_.contains(event.rank) && ranks_.size() >= kMostRanks) return;
    Rank& rank = ranks_[event.rank];
    if (track->second == "step") ++rank.steps;
    if (rank.steps == 0) return;
    Sums& sums = rank.steps == 1 ? rank.first : rank.later;
    if (track->second == "step") {
      sums.time.compute += event.split.compute;
      sums.time.exposed_comm += event.split.exposed_comm;
      sums.time.other += event.split.other;
    } else if (track->second == "waiting") {
      sums.time.waiting += event.ms;
    } else {
      const auto place = std::pair(track->second, event.name.substr(0, event.name.find(' ')));
      if (sums.classes.contains(place) || sums.classes.size() < kMostPlaces)
        sums.classes[place] += event.ms;
    }
  }

  std::optional<TraceTimes> take() {
    TraceTimes times;
    const auto ranks = static_cast<double>(ranks_.size());
    for (const auto& [number, rank] : ranks_) {
      if (rank.steps == 0) continue;
      const Sums& sums = rank.steps > 1 ? rank.later : rank.first;
      const auto steps = static_cast<double>(rank.steps > 1 ? rank.steps - 1 : 1);
      times.steps = static_cast<int64_t>(steps);
      times.ranks[number] = {sums.time.compute / steps, sums.time.exposed_comm / steps,
                             sums.time.other / steps, sums.time.waiting / steps};
      for (const auto& [place, ms] : sums.classes) times.classes[place] += ms / steps / ranks;
    }
    if (times.ranks.empty()) return std::nullopt;
    return times;
  }

 private:
  struct Sums {
    RankTime time;
    std::map<std::pair<std::string, std::string>, double> classes;
  };
  struct Rank {
    int64_t steps = 0;
    Sums first, later;
  };
  std::map<int64_t, std::string> tracks_;
  std::map<int64_t, Rank> ranks_;
};

// Finds the events of a trace: objects in the list "traceEvents" of the only object, and the members of their "args".
class EventReader : public nlohmann::json_sax<Json> {
 public:
  explicit EventReader(TraceSums& sums) : sums_(sums) {}

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return number(value);
  }
  bool string(string_t& value) override {
    if (depth_ == kEvent && key_ == "ph") event_.kind = value;
    if (depth_ == kEvent && key_ == "name") event_.name = value.substr(0, kLongestName);
    if (depth_ == kArguments && key_ == "name") event_.named = value.substr(0, kLongestName);
    return true;
  }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*elements*/) override {
    if (++depth_ == kEvent) event_ = {};
    return depth_ <= kDeepest;
  }
  bool end_object() override {
    if (depth_-- == kEvent && in_events_) sums_.add(event_);
    return true;
  }
  bool start_array(size_t /*elements*/) override {
    if (depth_ == 1) in_events_ = key_ == "traceEvents";
    return ++depth_ <= kDeepest;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& name) override {
    key_ = name.substr(0, kLongestName);
    return depth_ > 0;
  }
  bool parse_error(size_t /*at*/, const std::string& /*token*/,
                   const Json::exception& /*error*/) override {
    return false;
  }

 private:
  static constexpr int kEvent = 3, kArguments = 4, kDeepest = 16;
  static constexpr size_t kLongestName = 128;

  bool number(double value) {
    if (depth_ == kEvent) {
      if (key_ == "pid") event_.rank = static_cast<int64_t>(value);
      if (key_ == "tid") event_.track = static_cast<int64_t>(value);
      if (key_ == "dur") event_.ms = value / 1e3;
    } else if (depth_ == kArguments) {
      if (key_ == "compute_ms") event_.split.compute = value;
      if (key_ == "exposed_comm_ms") event_.split.exposed_comm = value;
      if (key_ == "other_ms") event_.split.other = value;
    }
    return true;
  }

  TraceSums& sums_;
  Event event_;
  std::string key_;
  int depth_ = 0;
  bool in_events_ = false;
};

}  // namespace

std::optional<TraceTimes> read_trace_times(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  TraceSums sums;
  EventReader reader(sums);
  if (!Json::sax_parse(file, &reader)) return std::nullopt;
  std::optional<TraceTimes> times = sums.take();
  if (times) times->file = path;
  return times;
}

}  // namespace dstrain::report
