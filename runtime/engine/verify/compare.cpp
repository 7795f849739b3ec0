#include "runtime/engine/verify/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "runtime/core/dtype.h"

namespace dstrain {
namespace {

// The values of tensors, whole: by name, in the order in which the first rank that has them does.
struct Tensors {
  std::vector<std::string> names;
  std::map<std::string, std::vector<float>> values;

  // Takes the pieces of `slot` in `step` of all ranks. Ranks that hold the same elements must agree: where they do not,
  // the last rank's are taken, and `agree` is false for the tensor.
  std::map<std::string, bool> agree;
  std::map<std::string, std::string> unit;  // the buffer that each is a part of

  Tensors(const std::vector<const RankRecord*>& ranks, std::string_view slot, int64_t step) {
    std::map<std::string, std::vector<char>> known;
    for (const RankRecord* record : ranks)
      for (const RecordedPiece& piece : record->pieces) {
        if (piece.step != step || record->name(piece.slot) != slot) continue;
        const std::string& name = record->name(piece.name);
        if (!values.contains(name)) {
          names.push_back(name);
          agree[name] = true;
          unit[name] = record->name(piece.root);
        }
        std::vector<float>& all = values[name];
        std::vector<char>& there = known[name];
        const auto end = static_cast<size_t>(piece.begin + piece.count);
        if (all.size() < end) all.resize(end);
        if (there.size() < end) there.resize(end);
        for (int64_t i = 0; i < piece.count; ++i) {
          const float value = record->floats[static_cast<size_t>(piece.first + i)];
          const auto at = static_cast<size_t>(piece.begin + i);
          if (there[at] != 0 && !same_bits(all[at], value)) agree[name] = false;
          all[at] = value;
          there[at] = 1;
        }
      }
  }
};

std::vector<const RankRecord*> pointers(const std::vector<RankRecord>& records) {
  std::vector<const RankRecord*> list;
  for (const RankRecord& record : records) list.push_back(&record);
  return list;
}

double largest_of(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values)
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  return largest;
}

double norm_of(const Tensors& tensors) {
  double sum = 0;
  for (const auto& [name, values] : tensors.values)
    for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

double relative_error(const std::vector<float>& expected, const std::vector<float>& values,
                      double largest) {
  if (expected.size() != values.size()) return INFINITY;
  double error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = std::abs(static_cast<double>(values[i]) - static_cast<double>(expected[i]));
    if (!(e <= error)) error = std::isfinite(e) ? e : INFINITY;
  }
  if (error == 0) return 0;
  return largest > 0 ? error / largest : INFINITY;
}

bool have_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

const RecordedStep* step_of(const RankRecord& record, int64_t step) {
  const auto found = std::ranges::find(record.steps, step, &RecordedStep::step);
  return found == record.steps.end() ? nullptr : &*found;
}

// Returns whether two numbers are the same; so are two that are none.
bool same_number(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// Returns whether a step has lost its numbers. A gradient that overflows in a step that is skipped for it has not.
bool has_diverged(const RecordedStep& step) {
  return !std::isfinite(step.loss) || (step.skipped == 0 && !std::isfinite(step.norm));
}

bool within(double expected, double value, double share) {
  return std::abs(value - expected) <= share * std::abs(expected) + 1e-12;
}

// Returns what the plain run is; `layer_ranks`: that have parts of the same layers and samples.
std::string plain_text(const Job& job, int layer_ranks) {
  const bool pipeline = plain_job(job).pipeline.stages > 1;
  if (layer_ranks > 1)
    return fmt::format("{} on the same sequence and tensor ranks",
                       pipeline ? "a plain pipeline" : "plain training");
  return pipeline ? "a plain pipeline of as many stages" : "plain data parallelism";
}

class Comparing {
 public:
  Comparing(const Job& job, const VerifiedRuns& runs)
      : runs_(runs),
        data_ranks_(job.data_ranks()),
        layer_ranks_(job.sequence_ranks * job.tensor_ranks),
        divides_experts_(job.expert_ranks > 1),
        naive_({&runs.naive}, kGradientSlot, 1),
        gradients_(pointers(runs.configured), kGradientSlot, 1) {
    result_.plain = plain_text(job, layer_ranks_);
    result_.tolerance = tolerance_of(job);
  }

  Comparison run() {
    for (const RankRecord& record : runs_.configured) {
      if (!record.error.empty() && result_.problems.empty()) problem("{}", record.error);
      if (!record.fault.empty()) result_.faults.push_back(record.fault);
    }
    compare_steps();
    compare_bytes();
    compare_tensors();
    if (result_.problems.empty()) compare_state();
    if (result_.problems.empty()) find_what_shows_nothing();
    if (!result_.problems.empty()) result_.first = find_first();
    result_.equal = result_.problems.empty() && result_.not_compared.empty();
    return std::move(result_);
  }

 private:
  template <class... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    result_.problems.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  void compare_steps() {
    const Tolerance& t = result_.tolerance;
    double largest_norm = 0;
    for (const RecordedStep& naive : runs_.naive.steps) {
      const RecordedStep* const plain = step_of(runs_.plain.front(), naive.step);
      const RecordedStep* const mine = step_of(runs_.configured.front(), naive.step);
      if (plain == nullptr || mine == nullptr) {
        if (runs_.configured.front().error.empty())
          problem("step {} is missing in the configured run", naive.step);
        continue;
      }
      result_.steps.push_back(
          {naive.step, naive.loss, plain->loss, mine->loss, naive.norm, plain->norm, mine->norm});
      if (!result_.diverged && has_diverged(*plain) && has_diverged(*mine))
        result_.diverged = naive.step;
      const double share = naive.step == 1 ? t.first_loss : t.loss;
      // Numbers that all runs have lost differ from themselves.
      const bool exact = naive.step <= t.steps && !(result_.diverged && has_diverged(naive));
      lost_first_ = lost_first_ || (naive.step == 1 && result_.diverged && has_diverged(naive));
      largest_norm = std::max(largest_norm, naive.norm);
      if (exact && !within(naive.loss, mine->loss, share))
        problem("step {}: loss {:.9g}, {:.9g} in the naive run (tolerance {:.1g})", naive.step,
                mine->loss, naive.loss, share);
      // A small error is a large share of a norm that is almost 0, so it counts against the largest one. In the first
      // step the gradients themselves are compared, which may be small sums of large terms: the norm must be theirs.
      const double expected = naive.step == 1 ? naive.norm * first_norms_ratio() : naive.norm;
      if (exact && naive.skipped == 0 && (naive.step == 1 || t.later_norms) &&
          !(std::abs(mine->norm - expected) <= t.norm * largest_norm + 1e-12))
        problem("step {}: gradient norm {:.7g}, {:.7g} in the naive run (tolerance {:.1g})",
                naive.step, mine->norm, naive.norm, t.norm);
      if (!same_number(plain->loss, mine->loss))
        problem("step {}: loss {:.17g}, {:.17g} in {} (the same bits)", naive.step, mine->loss,
                plain->loss, result_.plain);
      if (!same_number(plain->norm, mine->norm))
        problem("step {}: gradient norm {:.9g}, {:.9g} in {} (the same bits)", naive.step,
                mine->norm, plain->norm, result_.plain);
    }
  }

  // Returns the norm of the configured run's gradients of the first step, as a multiple of that of the naive run's.
  double first_norms_ratio() const {
    const double naive = norm_of(naive_), configured = norm_of(gradients_);
    return naive > 0 && std::isfinite(configured / naive) ? configured / naive : 1;
  }

  // A step sends what its plan says; rows of experts are as many as tokens choose.
  void compare_bytes() {
    if (divides_experts_) return;
    for (size_t r = 0; r < runs_.configured.size(); ++r)
      for (const RecordedStep& step : runs_.configured[r].steps)
        if (step.sent != step.planned)
          return problem("step {}: rank {} sent {} bytes, and its plan says {}", step.step, r,
                         step.sent, step.planned);
  }

  // Returns the last step of the plain run; 0 if it has none.
  int64_t last_step() const {
    const auto& steps = runs_.plain.front().steps;
    return steps.empty() ? 0 : steps.back().step;
  }

  void compare_tensors() {
    const int64_t last = last_step();
    const auto configured = pointers(runs_.configured);
    const Tensors expected(pointers(runs_.plain), "master", last);
    const Tensors weights(configured, "master", last);
    for (const std::string& name : naive_.names) {
      ComparedTensor tensor{.name = name};
      const auto gradient = gradients_.values.find(name);
      const double terms = terms_of(name);
      tensor.gradient_error = gradient == gradients_.values.end()
                                  ? INFINITY
                                  : relative_error(naive_.values.at(name), gradient->second, terms);
      const auto mine = weights.values.find(name), plain = expected.values.find(name);
      tensor.bitwise = mine != weights.values.end() && plain != expected.values.end() &&
                       have_same_bits(mine->second, plain->second) &&
                       weights.agree.at(name) == expected.agree.at(name);
      const double least = terms > 0 ? result_.tolerance.least / terms : 0;
      if (!lost_first_ && !(tensor.gradient_error <= result_.tolerance.gradient + least))
        problem("{}: its gradient differs by {:.2g} of its terms (tolerance {:.1g})", name,
                tensor.gradient_error, result_.tolerance.gradient);
      if (!tensor.bitwise)
        problem("{}: its weights after step {} have other bits than in {}", name, last,
                result_.plain);
      result_.tensors.push_back(std::move(tensor));
    }
    for (const std::string& name : weights.names) {  // frozen ones have no gradient
      if (naive_.values.contains(name)) continue;
      const auto plain = expected.values.find(name);
      result_.tensors.push_back(
          {.name = name,
           .bitwise = plain != expected.values.end() &&
                      have_same_bits(weights.values.at(name), plain->second)});
      if (!result_.tensors.back().bitwise)
        problem("{}: its frozen values differ after step {}", name, last);
    }
  }

  // Compares what the optimizer and the codecs keep, where an error may not have reached a weight yet.
  void compare_state() {
    const int64_t last = last_step();
    if (const auto found = different_state(runs_.plain, configured_run(), last))
      problem("{} on rank {} after step {} has other bits than in {}", found->buffer, found->rank,
              last, result_.plain);
  }

  // Notes what no number of the runs tells.
  void find_what_shows_nothing() {
    const auto& steps = runs_.plain.front().steps;
    std::vector<std::string>& list = result_.not_compared;
    if (lost_first_)
      list.push_back("the first step has no finite loss or gradient norm, in the other runs too");
    else if (std::ranges::none_of(steps, [](const RecordedStep& s) { return s.skipped == 0; }))
      list.push_back("every step is skipped, in the plain run too: no update is compared");
    for (const std::string& state :
         state_without_counterpart(runs_.plain, configured_run(), last_step()))
      list.push_back(fmt::format("{}: {} does not have it", state, result_.plain));
    if (!result_.faults.empty())
      list.push_back("the seeded fault has changed no value that is compared");
  }

  ConfiguredRun configured_run() const { return {runs_.configured, data_ranks_, layer_ranks_}; }

  // Returns what rounding errors of the tensor's gradient are shares of: the sum of the largest elements of its terms, as
  // terms may cancel each other. With `of_unit` the largest such sum of its layer.
  double terms_of(const std::string& name) const {
    const auto of_tensor = [&](const std::string& tensor) {
      double sum = 0;
      for (const RecordedTerm& term : runs_.naive.terms)
        if (runs_.naive.name(term.name) == tensor) sum += term.largest;
      return std::max(sum, largest_of(naive_.values.at(tensor)));
    };
    if (!result_.tolerance.of_unit) return of_tensor(name);
    double largest = 0;
    for (const auto& [other, values] : naive_.values)
      if (naive_.unit.at(other) == naive_.unit.at(name))
        largest = std::max(largest, of_tensor(other));
    return largest;
  }

  std::optional<FirstDifference> find_first() const {
    const ConfiguredRun run = configured_run();
    if (auto found = first_difference(runs_.plain, run)) return found;
    return first_difference_of_micro_batches(runs_.naive, run);
  }

  const VerifiedRuns& runs_;
  int data_ranks_, layer_ranks_;
  bool divides_experts_;
  bool lost_first_ = false;          // the first step's numbers, in all runs
  const Tensors naive_, gradients_;  // gradients of the first step
  Comparison result_;
};

}  // namespace

std::string_view verdict_of(const Comparison& c) {
  return !c.problems.empty() ? "different" : c.equal ? "equal" : "not compared";
}

Comparison compare_runs(const Job& job, const VerifiedRuns& runs) {
  return Comparing(job, runs).run();
}

}  // namespace dstrain
