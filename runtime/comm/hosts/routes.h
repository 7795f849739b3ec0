// Routes: how sums and copies travel between hosts. Pure arithmetic, with the same result on every rank.
//
// A sum has the bits of ((x0 + x1) + x2) + ... in rank order. fp32 addition is not associative, so hosts
// cannot add their own ranks first and then add these sums, as a ring would. For each element one of two
// things can cross a link: the running sum of all earlier ranks (in fp32 for 16-bit floats), or the
// elements of single ranks, raw. Each window of elements has a finisher, the host that adds the last rank:
//   chained: hosts before the finisher pass the running sum from host to host; hosts after it send the
//            finisher their ranks' elements raw. The first hop is raw too if that is fewer bytes.
//   direct:  every host sends raw elements to the finisher. The only way if the ranks of a host are not
//            consecutive.
// Results go round the hosts as in a ring: each host passes them to the host before it.
//
// For n bytes on H hosts of L ranks an all-reduce moves, at the busiest link and in each direction:
//   chained, finished by the last host   n for H=2, else 2n (twice that for 16-bit running sums)
//   direct, finishers in turn            (L+1)(H-1)/H n
//   a ring (which has other bits)        2(H-1)/H n
// So for f32 on two hosts the chain is as good as any ring. 16-bit and scattered sums gain from a mixture
// that loads both directions alike: some windows are chained to the last host, the others are finished by
// each host in turn (by their owner, if sums are scattered). Of sixteen mixtures of each kind, the one
// with the fewest bytes at its busiest link is chosen.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/comm/rendezvous/host_map.h"

namespace dstrain {

// The part of one host in the transfer of one window: the hosts that it receives from and sends to. -1: none.
struct Leg {
  int running_from = -1;  // sends this host the running sum of all ranks before its own
  // These hosts, this one left out, send it the raw elements of all their ranks.
  int raw_begin = 0;
  int raw_end = 0;
  int raw_to = -1;        // receives the raw elements of this host's ranks
  int running_to = -1;    // receives the running sum up to this host's ranks
  bool finishes = false;  // this host makes the result, or has it from the start
  int result_from = -1;
  int result_to = -1;
  bool keeps = true;  // ranks of this host need the result

  bool takes_raw_from(int host, int own) const {
    return host != own && host >= raw_begin && host < raw_end;
  }
};

class Routes {
 public:
  static constexpr int kAllHosts = -1;

  // `running_ratio`: the size of an element's running sum over that of the element, 1 or 2. `scattered`:
  // each sum is needed by one host, not by all.
  Routes(const HostMap& hosts, int running_ratio, bool scattered);

  // Returns the part of `host` in the sum of the `window`-th window, which `needed_by` needs (a host, or
  // kAllHosts).
  Leg of_sum(int host, int64_t window, int needed_by) const;

  // Returns the bytes that cross the busiest link in its busier direction, over those of the tensor.
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

// Returns the part of `host` in a copy from host `source` to all hosts.
Leg leg_of_copy(const HostMap& hosts, int host, int source);

// Returns the part of `host` in bringing elements of all ranks to a rank of host `target`, each as it is.
Leg leg_of_exchange(const HostMap& hosts, int host, int target);

}  // namespace dstrain
