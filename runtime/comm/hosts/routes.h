// Routes: how sums and copies travel between hosts. Pure arithmetic; every rank comes to the same.
//
// A sum's bits are those of ((x0 + x1) + x2) + ... in rank order, so hosts cannot each add their own
// ranks and add the results, as a ring would: fp32 sums are not associative. What can cross a link for
// an element is either one running sum of all ranks before (a prefix of the order, fp32 for 16-bit
// floats), or single ranks' elements, raw. Each window of elements has a finisher, the host that adds
// its last rank:
//   chained: hosts before the finisher hand the running sum on, host to host; hosts after it send the
//            finisher their ranks' elements raw. The first hop is raw too where that is less.
//   direct:  every host sends raw elements to the finisher. The only way where a host's ranks do not
//            follow one another.
// Results go round the hosts as in a ring, each passing them to the host before it.
//
// For n bytes on H hosts of L ranks an all-reduce moves, at the busiest link and in each direction:
//   chained, finished by the last host   n for H=2, else 2n (twice that for 16-bit running sums)
//   direct, finishers in turn            (L+1)(H-1)/H n
//   a ring, that would change the bits   2(H-1)/H n
// So for f32 on two hosts the chain is as good as any ring. 16-bit wires, and scattered sums, gain from
// a mixture: some windows chained to the last host, the others finished by each host in turn (by their
// owner, where sums are scattered), which loads both directions alike. Sixteen mixtures of each kind
// are counted and the one with the least bytes at its busiest link is taken.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/comm/rendezvous/host_map.h"

namespace dstrain {

// What one host does with one window. -1: with nobody.
struct Leg {
  int running_from = -1;  // the running sum of all ranks before this host's comes in
  // The elements of all ranks of these hosts, but for this one, come in.
  int raw_begin = 0;
  int raw_end = 0;
  int raw_to = -1;        // this host's ranks' elements go out
  int running_to = -1;    // the running sum of this host's ranks and those before goes out
  bool finishes = false;  // makes the result, or has it from the start
  int result_from = -1;
  int result_to = -1;
  bool keeps = true;  // ranks of this host need the result

  bool takes_raw_from(int host, int own) const {
    return host != own && host >= raw_begin && host < raw_end;
  }
};

class Routes {
 public:
  static constexpr int kEverybody = -1;

  // `running_ratio`: bytes of an element's running sum by those of the element, 1 or 2. `scattered`:
  // of sums that one host needs, not all.
  Routes(const HostMap& hosts, int running_ratio, bool scattered);

  // The part of `host` in the sum of the `window`-th window, which `needed_by` needs (a host, or
  // kEverybody).
  Leg of_sum(int host, int64_t window, int needed_by) const;

  // Bytes that cross the busiest link in its busier direction, by those of the whole tensor.
  double busiest_link() const { return busiest_link_; }

 private:
  static constexpr int kShares = 16;

  int finisher(int64_t window, int needed_by) const;
  Leg leg(int host, int finisher, int needed_by) const;
  int64_t count_busiest_link() const;

  const HostMap* hosts_;
  int running_ratio_;
  bool scattered_;
  bool chained_ = false;
  int to_last_ = 0;  // of kShares windows, how many the last host finishes
  double busiest_link_ = 0;
};

// The part of `host` where host `source` has what all hosts need.
Leg leg_of_copy(const HostMap& hosts, int host, int source);

}  // namespace dstrain
