// Arrivals: a rank's wait until the other ranks of its machine have arrived as often as it has.
#pragma once

#include <algorithm>
#include <chrono>

#include "runtime/comm/shared/shared_group.h"
#include "runtime/comm/stages.h"

namespace dstrain {

class Arrivals : public Awaited {
 public:
  // `group` outlives this object. A sleep lasts at most `longest`, since not every abort wakes a sleeper.
  Arrivals(SharedGroup& group, std::chrono::milliseconds longest)
      : group_(group), longest_(longest) {}

  bool ready() override { return group_.all_here(); }
  int waited_rank() override {
    const int lagging = group_.lagging();
    if (lagging < 0) return -1;
    // That rank may itself only wait for a rank of another machine.
    const int remote = group_.waits_for(lagging);
    return remote >= 0 ? remote : group_.rank_of(lagging);
  }
  void sleep(int, std::chrono::microseconds longest) override {
    group_.sleep(std::min<std::chrono::microseconds>(longest, longest_));
  }

 private:
  SharedGroup& group_;
  std::chrono::milliseconds longest_;
};

}  // namespace dstrain
