// Records of ranks for tests of comparisons.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/engine/verify/rank_record.h"

namespace dstrain {

// Makes records by hand.
class Record {
 public:
  struct Operand {
    std::string name, root;
    uint64_t checksum;
    std::string copy_of = "";  // the value that it is a copy of
  };

  Record& issue(int step, const std::string& title, int micro, const std::vector<Operand>& inputs,
                const std::vector<Operand>& outputs, bool moves = false, bool at_end = false) {
    const bool sums = title.starts_with("all_reduce") || title.starts_with("reduce_scatter");
    const Moves moved = !moves                      ? Moves::nothing
                        : title.starts_with("send") ? Moves::sends
                        : title.starts_with("recv") ? Moves::receives
                                                    : Moves::values;
    record.issues.push_back({.step = step,
                             .title = index(title),
                             .micro = micro,
                             .at_end = at_end,
                             .moves = moved,
                             .computes = !moves && !sums,
                             .sums = sums,
                             .inputs = static_cast<int32_t>(inputs.size()),
                             .outputs = static_cast<int32_t>(outputs.size()),
                             .first = static_cast<int64_t>(record.values.size())});
    for (const auto* list : {&inputs, &outputs})
      for (const Operand& o : *list)
        record.values.push_back(
            {index(o.name, o.copy_of), index(o.root, o.copy_of), 8, o.checksum});
    return *this;
  }
  Record& piece(int step, const std::string& name, const std::string& slot, const std::string& root,
                int64_t begin, const std::vector<float>& values) {
    record.pieces.push_back({.step = step,
                             .name = index(name),
                             .slot = index(slot),
                             .root = index(root),
                             .begin = begin,
                             .count = static_cast<int64_t>(values.size()),
                             .first = static_cast<int64_t>(record.floats.size()),
                             .at = static_cast<int64_t>(record.issues.size())});
    record.floats.insert(record.floats.end(), values.begin(), values.end());
    return *this;
  }
  Record& step(int64_t number, double loss, double norm) {
    record.steps.push_back({.step = number, .loss = loss, .norm = norm});
    return *this;
  }

  RankRecord record;

 private:
  int32_t index(const std::string& name, const std::string& copy_of = "") {
    const int32_t original = copy_of.empty() ? -1 : record.add_name(copy_of);
    return record.add_name(name, BufferRole::other, original);
  }
};

}  // namespace dstrain
