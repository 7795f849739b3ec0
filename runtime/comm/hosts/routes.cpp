#include "runtime/comm/hosts/routes.h"

#include <algorithm>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// The result goes from `source` to the host before it, and so on round all hosts.
void pass_round(int hosts, int host, int source, Leg& leg) {
  if (host != source) leg.result_from = (host + 1) % hosts;
  const int next = (host + hosts - 1) % hosts;
  if (next != source) leg.result_to = next;
}

}  // namespace

Leg leg_of_copy(const HostMap& hosts, int host, int source) {
  Leg leg;
  leg.finishes = host == source;
  pass_round(hosts.hosts(), host, source, leg);
  return leg;
}

Leg leg_of_exchange(const HostMap& hosts, int host, int target) {
  Leg leg;
  leg.finishes = leg.keeps = host == target;
  if (host == target)
    leg.raw_end = hosts.hosts();
  else
    leg.raw_to = target;
  return leg;
}

Routes::Routes(const HostMap& hosts, int running_ratio, bool scattered)
    : hosts_(&hosts), running_ratio_(running_ratio), scattered_(scattered) {
  bool best_chained = false;
  int best_to_last = 0;
  int64_t best = count_busiest_link();
  for (const bool chained : {false, true}) {
    if (chained && !hosts.consecutive()) continue;
    for (int to_last = 0; to_last <= kShares; ++to_last) {
      chained_ = chained;
      to_last_ = to_last;
      const int64_t load = count_busiest_link();
      if (load >= best) continue;
      best = load;
      best_chained = chained;
      best_to_last = to_last;
    }
  }
  chained_ = best_chained;
  to_last_ = best_to_last;
  busiest_link_ =
      static_cast<double>(best) / (kShares * (scattered ? hosts.ranks() : hosts.hosts()));
}

int Routes::finisher(int64_t window, int needed_by) const {
  const int last = hosts_->hosts() - 1;
  const int64_t given_to_last = window * to_last_ / kShares;
  if ((window + 1) * to_last_ / kShares > given_to_last) return last;
  return needed_by == kAllHosts ? static_cast<int>((window - given_to_last) % (last + 1))
                                : needed_by;
}

Leg Routes::of_sum(int host, int64_t window, int needed_by) const {
  return leg(host, finisher(window, needed_by), needed_by);
}

Leg Routes::leg(int host, int end, int needed_by) const {
  const int count = hosts_->hosts();
  Leg leg;
  leg.finishes = host == end;
  const bool first_hop_raw = chained_ && hosts_->ranks_on(0) < running_ratio_;
  const bool in_chain = chained_ && host <= end;
  const bool after_raw_hop = in_chain && host == 1 && first_hop_raw;
  if (in_chain && host > 0 && !after_raw_hop) leg.running_from = host - 1;
  if (in_chain && host < end) (host == 0 && first_hop_raw ? leg.raw_to : leg.running_to) = host + 1;
  if (!in_chain && host != end) leg.raw_to = end;
  leg.raw_begin = chained_ && !after_raw_hop ? end + 1 : 0;
  leg.raw_end = host == end ? count : after_raw_hop ? 1 : 0;

  if (needed_by == kAllHosts) {
    pass_round(count, host, end, leg);
  } else {
    leg.keeps = host == needed_by;
    if (end != needed_by) {
      if (host == end) leg.result_to = needed_by;
      if (host == needed_by) leg.result_from = end;
    }
  }
  return leg;
}

// In integers, so that every rank chooses the same mixture.
int64_t Routes::count_busiest_link() const {
  const int count = hosts_->hosts(), last = count - 1;
  std::vector<int64_t> sent(static_cast<size_t>(count)), received(static_cast<size_t>(count));
  const auto add = [&](int end, int needed_by, int64_t weight) {
    for (int h = 0; h < count && weight > 0; ++h) {
      const Leg part = leg(h, end, needed_by);
      const auto move = [&](int to, int64_t elements) {
        if (to < 0) return;
        sent[static_cast<size_t>(h)] += weight * elements;
        received[static_cast<size_t>(to)] += weight * elements;
      };
      move(part.raw_to, hosts_->ranks_on(h));
      move(part.running_to, running_ratio_);
      move(part.result_to, 1);
    }
  };
  for (int h = 0; h < count; ++h) {
    if (scattered_) {
      add(last, h, int64_t{to_last_} * hosts_->ranks_on(h));
      add(h, h, int64_t{kShares - to_last_} * hosts_->ranks_on(h));
    } else {
      add(h, kAllHosts, kShares - to_last_ + (h == last ? to_last_ * count : 0));
    }
  }
  return std::max(*std::max_element(sent.begin(), sent.end()),
                  *std::max_element(received.begin(), received.end()));
}

}  // namespace dstrain
