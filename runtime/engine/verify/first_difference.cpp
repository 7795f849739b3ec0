#include "runtime/engine/verify/first_difference.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "runtime/core/dtype.h"
#include "runtime/engine/verify/computed_values.h"

namespace dstrain {
namespace {

// Returns whether a buffer holds a sum over micro-batches: losses, or gradients of weights.
bool holds_sum(BufferRole role) {
  return role == BufferRole::losses || role == BufferRole::gradients;
}

// Returns the input of an issue that is input `i` of its counterpart `here` in `mine`: by name; or by its place where both
// are the same instruction with as many elements of the same buffer, which begins elsewhere where ranks hold a part of it.
const RecordedValue* input_of(const RankRecord& record, const RecordedIssue& issue,
                              const RankRecord& mine, const RecordedIssue& here, int32_t i) {
  const RecordedValue& input = mine.values[static_cast<size_t>(here.first + i)];
  for (int32_t other = 0; other < issue.inputs; ++other) {
    const RecordedValue& value = record.values[static_cast<size_t>(issue.first + other)];
    if (record.original(value.name) == mine.original(input.name)) return &value;
  }
  if (issue.inputs != here.inputs || record.name(issue.title) != mine.name(here.title))
    return nullptr;
  const RecordedValue& value = record.values[static_cast<size_t>(issue.first + i)];
  return record.original(value.root) == mine.original(input.root) ? &value : nullptr;
}

bool comparable(const RecordedValue& a, const RecordedValue& b) {
  return a.elements > 0 && a.elements == b.elements;
}

FirstDifference difference_at(const RankRecord& record, int rank, size_t issue,
                              const std::string& buffer) {
  const RecordedIssue& at = record.issues[issue];
  return {at.step, rank, at.micro, record.name(at.title), buffer};
}

// Returns the newest issue before `end` that wrote the buffer `root`. One that only brought equal values passes on to
// the one that made them. `own`: what the rank itself writes there, which gathers in place leave as it is. Nothing if
// there is none.
std::optional<size_t> producer(const RankRecord& record, size_t end, std::string root, bool own) {
  for (size_t i = end; i-- > 0;) {
    const RecordedIssue& issue = record.issues[i];
    for (int32_t o = 0; o < issue.outputs; ++o) {
      const RecordedValue& out = record.values[static_cast<size_t>(issue.first + issue.inputs + o)];
      if (record.name(out.root) != root) continue;
      if (issue.moves == Moves::nothing || issue.inputs != 1) return i;
      const RecordedValue& in = record.values[static_cast<size_t>(issue.first)];
      if (own && in.root == out.root) break;
      const bool same =
          in.elements == 0 || out.elements == 0 ||
          (in.elements == out.elements && in.checksum == out.checksum && in.root != out.root);
      if (!same) return i;
      root = record.name(in.root);
      break;
    }
  }
  return std::nullopt;
}

// A configured rank with the values that it has computed.
struct Rank {
  int number = 0;
  Computed computed;
};

// What is to blame for a value that differs.
struct Blamed {
  const Rank* rank = nullptr;
  size_t issue = 0;  // of the rank
  int32_t name = 0;  // of what differs, in the rank's record

  const RankRecord& record() const { return rank->computed.record(); }
  const RecordedIssue& at() const { return record().issues[issue]; }
  FirstDifference text() const {
    return difference_at(record(), rank->number, issue, record().name(name));
  }
};

// Returns the instruction that wrote a value, or what brought one of its inputs.
Blamed blame(const RankRecord& reference, const RecordedIssue& there, const Rank& rank,
             const Written& written) {
  const RankRecord& mine = rank.computed.record();
  const RecordedIssue& here = mine.issues[written.issue];
  for (int32_t i = 0; i < here.inputs; ++i) {
    const RecordedValue& input = mine.values[static_cast<size_t>(here.first + i)];
    const RecordedValue* const other = input_of(reference, there, mine, here, i);
    if (other == nullptr || !comparable(input, *other) || input.checksum == other->checksum)
      continue;
    const auto source = producer(mine, written.issue, mine.name(input.root), false);
    return {&rank, source.value_or(written.issue), input.name};
  }
  return {&rank, written.issue, written.value->name};
}

// Returns whether a receipt is that of a message which came as another rank of the run has sent it.
bool is_as_sent(const std::vector<Rank>& ranks, const Blamed& blamed) {
  const RecordedIssue& at = blamed.at();
  // Returns the message with this value; null if the rank has none.
  const auto find = [&](const Rank& rank, Moves kind) -> const RecordedValue* {
    const RankRecord& record = rank.computed.record();
    for (const RecordedIssue& issue : record.issues) {
      if (issue.step != at.step || issue.micro != at.micro || issue.moves != kind) continue;
      const RecordedValue& value = record.values[static_cast<size_t>(issue.first)];
      if (record.original(value.name) == blamed.record().original(blamed.name)) return &value;
    }
    return nullptr;
  };
  const RecordedValue* const received = find(*blamed.rank, Moves::receives);
  return received != nullptr && std::ranges::any_of(ranks, [&](const Rank& rank) {
           const RecordedValue* const sent = find(rank, Moves::sends);
           return sent != nullptr && sent->checksum == received->checksum;
         });
}

// Looks at the computed values of one step in the order of the reference, but for those of roles for which `skip` holds.
// `find_rank` returns which of `ranks` may have
// the reference's micro-batch, and its number there.
struct Counterpart {
  std::vector<const Rank*> ranks;
  int64_t micro = 0;
};
// A difference, and the index of the reference's issue whose result differs.
struct DifferentValue {
  size_t issue = 0;
  Blamed blamed;
};
template <class FindRank, class Skip>
std::optional<DifferentValue> compare_values(const Computed& reference, int64_t step, bool at_end,
                                             const FindRank& find_rank, const Skip& skip) {
  const RankRecord& record = reference.record();
  for (size_t i = 0; i < record.issues.size(); ++i) {
    const RecordedIssue& issue = record.issues[i];
    if (issue.step != step || (!issue.computes && !issue.sums) || (issue.at_end != 0) != at_end)
      continue;
    const Counterpart counterpart = find_rank(issue.micro);
    for (int32_t o = 0; o < issue.outputs; ++o) {
      const RecordedValue& value =
          record.values[static_cast<size_t>(issue.first + issue.inputs + o)];
      if (!reference.is_newest(issue, value) || skip(record.role(value.name))) continue;
      for (const Rank* rank : counterpart.ranks)
        for (const Written& other : rank->computed.find(
                 step, counterpart.micro, record.original(value.name), issue.sums != 0))
          if (comparable(*other.value, value) && other.value->checksum != value.checksum)
            return DifferentValue{i, blame(record, issue, *rank, other)};
    }
  }
  return std::nullopt;
}

// The pieces of a run's ranks.
class Pieces {
 public:
  explicit Pieces(const RankRecord& record) : record_(record) {
    for (const RecordedPiece& piece : record.pieces)
      by_name_[record.name(piece.name) + ' ' + record.name(piece.slot) + ' ' +
               std::to_string(piece.step)]
          .push_back(&piece);
  }
  // Returns the values of elements [begin, begin + count) of a tensor, or null if the rank does not have all.
  const float* find(const std::string& name, const std::string& slot, int64_t step, int64_t begin,
                    int64_t count) const {
    const auto found = by_name_.find(name + ' ' + slot + ' ' + std::to_string(step));
    if (found == by_name_.end()) return nullptr;
    for (const RecordedPiece* piece : found->second)
      if (piece->begin <= begin && begin + count <= piece->begin + piece->count)
        return record_.floats.data() + piece->first + (begin - piece->begin);
    return nullptr;
  }

 private:
  const RankRecord& record_;
  std::unordered_map<std::string, std::vector<const RecordedPiece*>> by_name_;
};

// Returns what `find` returns for the first plain rank that has a piece of configured rank r. All ranks have the same values,
// but for those that are a rank's own: its counterparts, one in each of the plain run's stages, come first.
template <class Find>
const float* find_expected(const std::vector<Pieces>& plain, const ConfiguredRun& run, size_t r,
                           const Find& find) {
  const auto ranks = static_cast<size_t>(run.stage_ranks());
  for (size_t other = r % ranks; other < plain.size(); other += ranks)
    if (const float* const found = find(plain[other])) return found;
  for (const Pieces& other : plain)
    if (const float* const found = find(other)) return found;
  return nullptr;
}

// Returns whether another rank of rank r's stage has the bits of `expected` for an element.
bool is_right_elsewhere(const std::vector<Pieces>& configured, const ConfiguredRun& run, size_t r,
                        const std::string& name, const std::string& slot, int64_t step,
                        int64_t element, float expected) {
  const auto ranks = static_cast<size_t>(run.stage_ranks());
  for (size_t other = r / ranks * ranks; other < (r / ranks + 1) * ranks; ++other) {
    const float* const value = configured[other].find(name, slot, step, element, 1);
    if (value != nullptr && same_bits(*value, expected)) return true;
  }
  return false;
}

// Compares the gradients of a step, or the state after it.
std::optional<FirstDifference> compare_pieces(const std::vector<Pieces>& plain,
                                              const std::vector<Pieces>& configured,
                                              const ConfiguredRun& run, int64_t step,
                                              bool gradients) {
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    const RankRecord& mine = run.ranks[r];
    for (const RecordedPiece& piece : mine.pieces) {
      const std::string& name = mine.name(piece.name);
      const std::string& slot = mine.name(piece.slot);
      if (piece.step != step || (slot == kGradientSlot) != gradients) continue;
      const float* const expected = find_expected(plain, run, r, [&](const Pieces& of) {
        return of.find(name, slot, step, piece.begin, piece.count);
      });
      if (expected == nullptr) continue;
      const float* const values = mine.floats.data() + piece.first;
      if (std::memcmp(values, expected, static_cast<size_t>(piece.count) * sizeof(float)) == 0)
        continue;
      int64_t element = 0;
      while (same_bits(values[element], expected[element])) ++element;
      // Where another rank of the stage has the value, this one has not been brought it.
      const bool own = !gradients && !is_right_elsewhere(configured, run, r, name, slot, step,
                                                         piece.begin + element, expected[element]);
      const auto source = producer(mine, static_cast<size_t>(piece.at), mine.name(piece.root), own);
      const std::string what = fmt::format("{} of {}", slot, name);
      if (source) return difference_at(mine, static_cast<int>(r), *source, what);
      return FirstDifference{step, static_cast<int>(r), 0, "", what};
    }
  }
  return std::nullopt;
}

std::vector<Pieces> pieces_of(const std::vector<RankRecord>& records) {
  return {records.begin(), records.end()};
}

std::vector<Rank> ranks_of(const ConfiguredRun& run) {
  std::vector<Rank> ranks;
  for (size_t r = 0; r < run.ranks.size(); ++r)
    ranks.push_back({static_cast<int>(r), Computed(run.ranks[r])});
  return ranks;
}

int64_t last_step(const RankRecord& record) {
  int64_t last = 0;
  for (const RecordedIssue& issue : record.issues) last = std::max<int64_t>(last, issue.step);
  for (const RecordedPiece& piece : record.pieces) last = std::max<int64_t>(last, piece.step);
  return last;
}

// Returns the ranks of all stages that have the same number in their stage: a rank's micro-batches, or parts of them.
std::vector<const Rank*> in_all_stages(const std::vector<Rank>& ranks, const ConfiguredRun& run,
                                       size_t number) {
  std::vector<const Rank*> list;
  for (int s = 0; s < run.stages(); ++s)
    list.push_back(&ranks[static_cast<size_t>(s * run.stage_ranks()) + number]);
  return list;
}

}  // namespace

std::optional<FirstDifference> first_difference(const std::vector<RankRecord>& plain,
                                                const ConfiguredRun& run) {
  const std::vector<Rank> ranks = ranks_of(run);
  const std::vector<Computed> references(plain.begin(), plain.end());
  const std::vector<Pieces> pieces = pieces_of(plain), configured = pieces_of(run.ranks);
  // A sum over ranks differs on all of them where one has added something else, and the other stage of a plain pipeline
  // computes with what it is sent: what was added or sent comes first. All ranks carry out the same instructions: of those
  // of several ranks the earliest one is to blame, whose result others have read.
  const bool plain_stages = plain.size() > static_cast<size_t>(run.stage_ranks());
  const auto values = [&](int64_t step, bool at_end) -> std::optional<FirstDifference> {
    std::optional<DifferentValue> earliest, of_message, of_sent, of_sum;
    // What has a value for each unit of the program, which is another unit's in a pipeline's stage.
    const auto skip = [&](BufferRole role) {
      return role == BufferRole::codec_errors ||
             (role == BufferRole::square_sums && run.stages() > 1);
    };
    for (size_t r = 0; r < references.size(); ++r) {
      const auto find_rank = [&](int64_t micro) {
        return Counterpart{in_all_stages(ranks, run, r % static_cast<size_t>(run.stage_ranks())),
                           micro};
      };
      if (auto found = compare_values(references[r], step, at_end, find_rank, skip)) {
        const RecordedIssue& at = found->blamed.at();
        const bool message = plain_stages && at.moves == Moves::receives;
        auto& kept = at.sums != 0                                  ? of_sum
                     : message && is_as_sent(ranks, found->blamed) ? of_sent
                     : message                                     ? of_message
                                                                   : earliest;
        if (!kept || found->issue < kept->issue) kept = found;
      }
    }
    for (const auto* found : {&earliest, &of_message, &of_sent, &of_sum})
      if (*found) return (*found)->blamed.text();
    return std::nullopt;
  };
  for (int64_t step = 1; step <= last_step(plain.front()); ++step) {
    if (auto found = values(step, false)) return found;
    if (auto found = compare_pieces(pieces, configured, run, step, true)) return found;
    if (auto found = values(step, true)) return found;
    if (auto found = compare_pieces(pieces, configured, run, step, false)) return found;
  }
  return std::nullopt;
}

std::optional<FirstDifference> different_state(const std::vector<RankRecord>& plain,
                                               const ConfiguredRun& run, int64_t step) {
  return compare_pieces(pieces_of(plain), pieces_of(run.ranks), run, step, false);
}

std::vector<std::string> state_without_counterpart(const std::vector<RankRecord>& plain,
                                                   const ConfiguredRun& run, int64_t step) {
  const std::vector<Pieces> pieces = pieces_of(plain);
  std::vector<std::string> names;
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    const RankRecord& mine = run.ranks[r];
    for (const RecordedPiece& piece : mine.pieces) {
      const std::string& name = mine.name(piece.name);
      const std::string& slot = mine.name(piece.slot);
      if (piece.step != step || slot == kGradientSlot) continue;
      const float* const expected = find_expected(pieces, run, r, [&](const Pieces& of) {
        return of.find(name, slot, step, piece.begin, piece.count);
      });
      if (expected == nullptr) names.push_back(fmt::format("{} of {} on rank {}", slot, name, r));
    }
  }
  return names;
}

std::optional<FirstDifference> first_difference_of_micro_batches(const RankRecord& naive,
                                                                 const ConfiguredRun& run) {
  const std::vector<Rank> ranks = ranks_of(run);
  const auto find_rank = [&](int64_t micro) {
    Counterpart counterpart{{}, micro / run.data_ranks};
    for (int part = 0; part < run.layer_ranks; ++part) {
      const auto number = static_cast<size_t>(micro % run.data_ranks * run.layer_ranks + part);
      for (const Rank* rank : in_all_stages(ranks, run, number)) counterpart.ranks.push_back(rank);
    }
    return counterpart;
  };
  const auto found = compare_values(Computed(naive), 1, false, find_rank, holds_sum);
  return found ? std::optional(found->blamed.text()) : std::nullopt;
}

}  // namespace dstrain
