// The values that a rank's instructions computed, as its record has them.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/engine/verify/rank_record.h"

namespace dstrain {

// A value that an instruction wrote.
struct Written {
  size_t issue = 0;
  const RecordedValue* value = nullptr;
};

// The newest values that a rank's instructions computed, by name, step and micro-batch: of a value that is computed again
// the first one, and then those of its copies.
class Computed {
 public:
  explicit Computed(const RankRecord& record) : record_(record) {
    for (size_t i = 0; i < record.issues.size(); ++i) {
      const RecordedIssue& issue = record.issues[i];
      if (!issue.computes && !issue.sums) continue;
      for (int32_t o = 0; o < issue.outputs; ++o) {
        const RecordedValue& value =
            record.values[static_cast<size_t>(issue.first + issue.inputs + o)];
        std::vector<Written>& copies =
            newest_[key_of(issue.step, issue.micro, record.original(value.name), issue.sums != 0)];
        const auto same = std::ranges::find_if(copies, [&](const Written& w) {
          return record.name(w.value->name) == record.name(value.name);
        });
        if (same == copies.end())
          copies.push_back({i, &value});
        else
          *same = {i, &value};
      }
    }
  }

  const RankRecord& record() const { return record_; }
  // Returns what was written of a value and of its copies. `sums`: values that are sums over ranks, which may have replaced
  // the rank's own.
  std::span<const Written> find(int64_t step, int64_t micro, std::string_view original,
                                bool sums) const {
    const auto found = newest_.find(key_of(step, micro, original, sums));
    return found == newest_.end() ? std::span<const Written>{} : found->second;
  }
  // Returns whether an output of the record is the newest one of its name.
  bool is_newest(const RecordedIssue& issue, const RecordedValue& value) const {
    return std::ranges::any_of(
        find(issue.step, issue.micro, record_.original(value.name), issue.sums != 0),
        [&](const Written& w) { return w.value == &value; });
  }

 private:
  static std::string key_of(int64_t step, int64_t micro, std::string_view original, bool sums) {
    return fmt::format("{} {} {}{}", original, step, micro, sums ? " sum" : "");
  }

  const RankRecord& record_;
  std::unordered_map<std::string, std::vector<Written>> newest_;
};

}  // namespace dstrain
