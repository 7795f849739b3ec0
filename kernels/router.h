// How a row of a mixture chooses experts and weighs them (runtime/ir/ops/experts/route.h), and the gradient of that: the same on
// every device. A row is computed by one thread, in f32, with no memory but its results.
//
// Row is a type with
//   float logit(int64_t expert) const
//   static float exp(float x)         the device's
#pragma once

#include <cstdint>

#include "runtime/ir/op.h"

namespace dstrain {

// The sizes and choices of a router.
struct Router {
  RouterScores scores = RouterScores::softmax;
  bool normalised = false;
  float epsilon = 0, scale = 1;
  int64_t experts = 0, slots = 0, groups = 1, kept_groups = 1;
  const float* bias = nullptr;  // f32 (experts), or null

  constexpr Router() = default;
  Router(const RouteAttrs& a, int64_t experts_of, int64_t slots_of)
      : scores(a.scores),
        normalised(a.normalised),
        epsilon(a.epsilon),
        scale(a.scale),
        experts(experts_of),
        slots(slots_of),
        groups(a.groups),
        kept_groups(a.kept_groups) {}
};

// What the shares of a row are computed from.
struct RouterPeak {
  float top = 0, sum = 1;
};

template <class Row>
struct RouterRow {
  Router router;
  Row row;

  // By what experts are chosen.
  constexpr float order(int64_t expert) const {
    if (router.scores != RouterScores::sigmoid) return row.logit(expert);
    return alone(expert) + (router.bias ? router.bias[expert] : 0.0f);
  }
  constexpr float alone(int64_t expert) const {
    return 1.0f / (1.0f + Row::exp(-row.logit(expert)));
  }

  // Returns what a group is chosen by: the sum of its two largest scores.
  constexpr float of_group(int64_t group) const {
    const int64_t size = router.experts / router.groups;
    float first = order(group * size), second = 0;
    for (int64_t i = 1; i < size; ++i) {
      const float value = order(group * size + i);
      const float less = value > first ? first : value;
      second = i == 1 || less > second ? less : second;
      first = value > first ? value : first;
    }
    return first + second;
  }

  // Returns a bit for each group that is chosen.
  constexpr uint64_t chosen_groups() const {
    uint64_t kept = 0;
    for (int64_t n = 0; n < router.kept_groups; ++n) {
      int64_t best = -1;
      float most = 0;
      for (int64_t g = 0; g < router.groups; ++g) {
        if ((kept >> g & 1) != 0) continue;
        const float value = of_group(g);
        if (best >= 0 && !(value > most)) continue;
        best = g;
        most = value;
      }
      kept |= uint64_t{1} << best;
    }
    return kept;
  }

  // Writes the chosen experts. `values` has room for as many numbers.
  constexpr void choose(float* values, int32_t* chosen) const {
    const uint64_t kept = router.kept_groups < router.groups ? chosen_groups() : ~uint64_t{0};
    const int64_t size = router.experts / router.groups;
    int64_t count = 0;
    for (int64_t e = 0; e < router.experts; ++e) {
      if ((kept >> (e / size) & 1) == 0) continue;
      const float value = order(e);
      if (count == router.slots && !(value > values[count - 1])) continue;
      int64_t at = count < router.slots ? count++ : count - 1;  // else the last one falls out
      for (; at > 0 && value > values[at - 1]; --at) {
        values[at] = values[at - 1];
        chosen[at] = chosen[at - 1];
      }
      values[at] = value;
      chosen[at] = static_cast<int32_t>(e);
    }
  }

  // Returns the expert of which shares are one, in the order of all that have a share.
  constexpr int64_t sharer(const int32_t* chosen, int64_t i) const {
    return router.scores == RouterScores::chosen ? chosen[i] : i;
  }
  constexpr int64_t sharers() const {
    return router.scores == RouterScores::chosen ? router.slots : router.experts;
  }

  constexpr RouterPeak peak(const int32_t* chosen) const {
    RouterPeak p;
    if (router.scores == RouterScores::sigmoid) return p;
    p.top = row.logit(chosen[0]);
    p.sum = 0;
    for (int64_t i = 0; i < sharers(); ++i) p.sum += Row::exp(row.logit(sharer(chosen, i)) - p.top);
    return p;
  }

  // Returns what an expert scores.
  constexpr float score(const RouterPeak& p, int64_t expert) const {
    if (router.scores == RouterScores::sigmoid) return alone(expert);
    return Row::exp(row.logit(expert) - p.top) / p.sum;
  }

  // Writes the chosen experts and their weights, which are not rounded.
  constexpr void route(float* weights, int32_t* chosen) const {
    choose(weights, chosen);
    const RouterPeak p = peak(chosen);
    float sum = router.epsilon;
    for (int64_t s = 0; s < router.slots; ++s) {
      weights[s] = score(p, chosen[s]);
      sum += weights[s];
    }
    for (int64_t s = 0; s < router.slots; ++s) {
      if (router.normalised) weights[s] /= sum;
      weights[s] *= router.scale;
    }
  }

  // Calls write(expert, gradient of its logit): of all experts in order, and then of the chosen ones once more.
  template <class Write>
  constexpr void differentiate(const float* d_weights, const int32_t* chosen,
                               const Write& write) const {
    const RouterPeak p = peak(chosen);
    float sum = router.epsilon, dot = 0;
    for (int64_t s = 0; s < router.slots; ++s) {
      const float value = score(p, chosen[s]);
      sum += value;
      dot += d_weights[s] * value;
    }
    // The gradient of a score is factor * d_weight - shift.
    const float factor = router.normalised ? router.scale / sum : router.scale,
                shift = router.normalised ? factor * (dot / sum) : 0.0f;
    float inner = 0;
    for (int64_t s = 0; s < router.slots; ++s)
      inner += (factor * d_weights[s] - shift) * score(p, chosen[s]);
    const bool shares_of_all = router.scores == RouterScores::softmax;
    for (int64_t e = 0; e < router.experts; ++e)
      write(e, shares_of_all ? -score(p, e) * inner : 0.0f);
    for (int64_t s = 0; s < router.slots; ++s) {
      const float value = score(p, chosen[s]), d = factor * d_weights[s] - shift;
      write(chosen[s],
            value * (router.scores == RouterScores::sigmoid ? d * (1.0f - value) : d - inner));
    }
  }
};

}  // namespace dstrain
