#include "runtime/storage/checkpoint/checkpoint_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "runtime/core/convert_floats.h"
#include "runtime/core/devices/host_pieces.h"
#include "runtime/storage/checkpoint/checkpoint_places.h"
#include "runtime/storage/checkpoint/slice_reader.h"
#include "runtime/storage/mismatches.h"
#include "runtime/storage/on_all_ranks.h"

namespace dstrain {
namespace {

constexpr size_t kNotThere = SIZE_MAX;  // of codec state that the checkpoint does not have

bool is_codec_state(std::string_view slot) {
  return slot.starts_with(kCodecSlots);
}

// Returns the shape of a row: without the first dimension.
Shape row_of(const Shape& shape) {
  Shape row;
  for (int i = 1; i < shape.rank; ++i) row.append(shape[i]);
  return row;
}

// Returns whether a tensor has a row of an entry's values for each of several groups of ranks.
bool has_copies(const CheckpointTensor& tensor, const StateEntry& entry) {
  return !entry.per_rank && tensor.shape.rank == entry.global_shape.rank + 1 &&
         row_of(tensor.shape) == entry.global_shape;
}

// Returns whether a tensor has the values of an entry.
bool fits(const CheckpointTensor& tensor, const StateEntry& entry) {
  if (tensor.dtype != entry.dtype)
    return tensor.shape == entry.global_shape && !entry.per_rank && !is_codec_state(entry.slot) &&
           is_convertible(tensor.dtype) && is_convertible(entry.dtype);
  // Packed rows cannot be added.
  if (!entry.per_rank || entry.dtype != DType::f32)
    return tensor.shape == entry.global_shape || has_copies(tensor, entry);
  return tensor.shape.rank > 0 && row_of(tensor.shape) == row_of(entry.global_shape);
}

using TensorIndex = std::map<std::pair<std::string_view, std::string_view>, size_t>;

// Returns the index of each tensor by its name and slot.
TensorIndex index_of(const Manifest& manifest) {
  TensorIndex index;
  for (size_t i = 0; i < manifest.tensors.size(); ++i)
    index[{manifest.tensors[i].name, manifest.tensors[i].slot}] = i;
  return index;
}

// Returns the index of the manifest's tensor for each entry of `state`; mismatches are added to `mismatches`.
std::vector<size_t> match(const Manifest& manifest, const StateRegister& state,
                          std::vector<std::string>& mismatches) {
  const TensorIndex index = index_of(manifest);
  std::vector<size_t> found;
  for (const StateEntry& entry : state) {
    const auto it = index.find({entry.name, entry.slot});
    const bool codec = is_codec_state(entry.slot);
    if (codec && (it == index.end() || !fits(manifest.tensors[it->second], entry))) {
      found.push_back(kNotThere);
      continue;
    }
    if (it == index.end()) {
      mismatches.push_back(fmt::format("{}/{} {} is missing", entry.name, entry.slot,
                                       to_string(entry.global_shape)));
      continue;
    }
    const CheckpointTensor& tensor = manifest.tensors[it->second];
    if (!fits(tensor, entry))
      mismatches.push_back(fmt::format("{}/{} is {} {}, expected {} {}", entry.name, entry.slot,
                                       name_of(tensor.dtype), to_string(tensor.shape),
                                       name_of(entry.dtype), to_string(entry.global_shape)));
    found.push_back(it->second);
  }
  return found;
}

void fail_mismatch(const std::string& dir, const std::vector<std::string>& mismatches) {
  if (mismatches.empty()) return;
  fail_user(
      "the checkpoint {} does not fit this run (mismatches: {}); resume with the model and "
      "optimizer it was saved with:\n  {}",
      dir, mismatches.size(), listed(mismatches));
}

// Throws UserError if no rank uses a tensor of the checkpoint, which would be lost, unless it is codec state. Returns
// whether there is such state, other than what a rank has in another shape. Collective.
bool check_all_used(const FoundCheckpoint& found, const StateRegister& state,
                    const std::vector<size_t>& used, Communicator& comm) {
  const auto count = static_cast<int64_t>(found.manifest.tensors.size());
  std::vector<int32_t> users(found.manifest.tensors.size());
  const TensorIndex index = index_of(found.manifest);
  for (size_t i = 0; i < used.size(); ++i) {
    const auto same_name = index.find({state[i].name, state[i].slot});
    if (same_name != index.end()) ++users[same_name->second];
  }
  if (count > 0) comm.all_reduce({users.data(), {count}, DType::i32}).wait();
  std::vector<std::string> mismatches;
  bool unused_codec_state = false;
  for (size_t i = 0; i < users.size(); ++i)
    if (users[i] == 0 && is_codec_state(found.manifest.tensors[i].slot))
      unused_codec_state = true;
    else if (users[i] == 0)
      mismatches.push_back(fmt::format("{}/{} {} is not part of it", found.manifest.tensors[i].name,
                                       found.manifest.tensors[i].slot,
                                       to_string(found.manifest.tensors[i].shape)));
  fail_mismatch(found.dir, mismatches);
  return unused_codec_state;
}

// Returns what becomes of codec state that does not go on as it was. `left_out`: some of the checkpoint's is not used.
std::vector<std::string> remarks_on_codecs(const Manifest& manifest, const StateRegister& state,
                                           const std::vector<size_t>& used, bool left_out) {
  std::vector<std::string> remarks;
  int64_t were = 0, are = 0;  // data-parallel ranks
  bool anew = false, sums = false, means = false;
  for (size_t i = 0; i < state.size(); ++i) {
    if (!is_codec_state(state[i].slot)) continue;
    if (used[i] == kNotThere) {
      anew = true;
    } else if (state[i].per_rank) {
      were = manifest.tensors[used[i]].shape[0];
      are = state[i].global_shape[0];
      (state[i].mean ? means : sums) = true;
    }
  }
  if (were != are && sums)
    remarks.push_back(fmt::format(
        "error feedback of {} data-parallel ranks goes on in {}: what they had is added up", were,
        are));
  if (were != are && means)
    remarks.push_back(
        fmt::format("local steps of {} data-parallel ranks go on in {}: each begins with their "
                    "mean momentum and sum",
                    were, are));
  if (anew)
    remarks.emplace_back(
        "codec state that the checkpoint does not have, or has in another shape, starts anew");
  if (left_out)
    remarks.emplace_back(
        "the checkpoint has codec state that this run does not use: it is left out");
  return remarks;
}

// Says in `info` what becomes of the values of several groups of ranks, if the checkpoint has such.
void judge_copies(const Manifest& manifest, const StateRegister& state,
                  const std::vector<size_t>& used, CheckpointInfo& info) {
  for (size_t i = 0; i < state.size(); ++i) {
    if (used[i] == kNotThere || !has_copies(manifest.tensors[used[i]], state[i])) continue;
    const int64_t were = manifest.tensors[used[i]].shape[0];
    if (were == state[i].copies) {
      info.groups = were;
      continue;
    }
    info.codec_remarks.push_back(
        fmt::format("the checkpoint has weights or optimizer state of {} groups of ranks "
                    "(post_localSGD), and this run has {}: their mean goes on",
                    were, state[i].copies));
    return;
  }
}

void check_same_step(Communicator& comm, const std::string& dir, int64_t step) {
  const auto mine = static_cast<double>(step);
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      fail_user(
          "--resume: rank 0 finds step {} in {}, and rank {} finds step {}: the ranks must see "
          "the same directory",
          all[0], dir, rank, all[rank]);
}

// Reads elements [begin, begin + count) of an entry's memory, in the tensor's dtype; padding becomes zeros. The entry's
// tensor begins with element `first` of the saved one.
void read_elements(SliceReader& reader, const CheckpointTensor& tensor, const StateEntry& entry,
                   int64_t first, int64_t begin, int64_t count, std::byte* to) {
  if (entry.part.by == TensorPart::By::nothing)
    return reader.read(tensor, first + begin, count, to);
  const int64_t size = size_of(tensor.dtype);
  std::memset(to, 0, static_cast<size_t>(count * size));
  for_runs(entry.part, entry.global_shape, begin, count, [&](const PartRun& run) {
    reader.read(tensor, first + run.whole, run.count, to + (run.held - begin) * size);
  });
}

// Saved rows that become one: those from `first` on, each `every` rows, added in order, in f32, and divided by `divisor`.
struct RowSum {
  int64_t row;     // elements of a row
  int64_t within;  // the first element of the slice in its row, or in the row's part
  int64_t first = 0, every = 1;
  float divisor = 1;
};

// Fills an entry of f32 values with a sum of rows.
void sum_rows(SliceReader& reader, const CheckpointTensor& tensor, const StateEntry& entry,
              const RowSum& rows) {
  check(entry.dtype == DType::f32, "{}/{}: rows are added in f32", entry.name, entry.slot);
  std::vector<float> sum, values;
  for (int64_t at = 0; at < entry.local.elements(); at += kChecksumBlock) {
    const auto n = std::min<int64_t>(kChecksumBlock, entry.local.elements() - at);
    sum.assign(static_cast<size_t>(n), 0);
    values.resize(sum.size());
    for (int64_t r = rows.first; r < tensor.shape[0]; r += rows.every) {
      read_elements(reader, tensor, entry, r * rows.row, rows.within + at, n,
                    reinterpret_cast<std::byte*>(values.data()));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    }
    for (float& value : sum) value /= rows.divisor;
    auto* const to = entry.local.as<float>() + at;
    if (entry.device)
      entry.device->upload(to, sum.data(), n * size_of(DType::f32));
    else
      std::memcpy(to, sum.data(), sum.size() * sizeof(float));
  }
}

// Fills a copy of a group with the mean of the copies of all groups.
void average_copies(SliceReader& reader, const CheckpointTensor& tensor, const StateEntry& entry) {
  sum_rows(reader, tensor, entry,
           {.row = entry.global_shape.elements(),
            .within = entry.begin,
            .divisor = static_cast<float>(tensor.shape[0])});
}

// Fills the row of a rank with the sum of the saved rows that fall to it, or with the mean of all rows.
void add_rows(SliceReader& reader, const CheckpointTensor& tensor, const StateEntry& entry) {
  const int64_t row = row_of(entry.global_shape).elements();
  if (entry.local.elements() == 0) return;
  RowSum rows{.row = row, .within = entry.begin % row};
  if (entry.mean) {
    rows.divisor = static_cast<float>(tensor.shape[0]);
  } else {
    rows.first = entry.begin / row;
    rows.every = entry.global_shape[0];
  }
  sum_rows(reader, tensor, entry, rows);
}

// Reads the values of an entry from the tensor that has them; `stored` is room for what is converted.
void read_entry(SliceReader& reader, const CheckpointTensor& tensor, const StateEntry& entry,
                std::vector<std::byte>& stored) {
  check(entry.begin >= 0 && entry.begin + entry.local.elements() <= elements_held(entry),
        "{}/{} has elements [{}, {}), which are outside of it", entry.name, entry.slot, entry.begin,
        entry.begin + entry.local.elements());
  int64_t first = 0;
  if (has_copies(tensor, entry)) {
    if (tensor.shape[0] != entry.copies) return average_copies(reader, tensor, entry);
    first = entry.copy * entry.global_shape.elements();
  } else if (tensor.shape != entry.global_shape) {
    return add_rows(reader, tensor, entry);
  }
  const int64_t n = entry.local.elements(), size = size_of(entry.dtype);
  const auto read = [&](int64_t at, std::byte* values, int64_t bytes) {
    const int64_t from = entry.begin + at / size, count = bytes / size;
    if (tensor.dtype == entry.dtype)
      return read_elements(reader, tensor, entry, first, from, count, values);
    stored.resize(static_cast<size_t>(count * size_of(tensor.dtype)));
    read_elements(reader, tensor, entry, first, from, count, stored.data());
    convert_floats({stored.data(), {count}, tensor.dtype}, {values, {count}, entry.dtype});
  };
  if (entry.device)
    return for_host_pieces(*entry.device, entry.local.data, n * size, kChecksumBlock,
                           HostAccess::write, read);
  const int64_t piece = tensor.dtype == entry.dtype ? n * size : kChecksumBlock;
  for (int64_t at = 0; at < n * size; at += piece)
    read(at, entry.local.as<std::byte>() + at, std::min(piece, n * size - at));
}

// Reads the values of this rank's slices into `state`. Throws UserError if they are damaged.
void read_values(const FoundCheckpoint& found, const std::vector<size_t>& used,
                 StateRegister& state) {
  SliceReader reader(found);
  std::vector<std::byte> stored;
  for (size_t i = 0; i < state.size(); ++i)
    if (used[i] != kNotThere) read_entry(reader, found.manifest.tensors[used[i]], state[i], stored);
}

// Reads the values on all ranks; collective. Returns a description of the damage on every rank if the checkpoint
// is damaged on one, else an empty string. Throws if anything else fails on a rank.
std::string damage_read(const FoundCheckpoint& found, const std::vector<size_t>& used,
                        StateRegister& state, Communicator& comm) {
  std::string damage;
  on_all_ranks(comm, "read its part of the checkpoint", [&] {
    try {
      read_values(found, used, state);
    } catch (const UserError& e) {
      damage = e.what();
    }
  });
  const double mine = damage.empty() ? 0 : 1;
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  for (size_t rank = 0; rank < all.size() && damage.empty(); ++rank)
    if (all[rank] != 0)
      damage = fmt::format(
          "rank {} could not read its part of the checkpoint {}, which is damaged there", rank,
          found.dir);
  return damage;
}

}  // namespace

CheckpointInfo load_checkpoint(const std::string& dir, StateRegister& state, Communicator& comm,
                               const JudgeCheckpoint& judge) {
  DamagedCheckpoints damaged;
  for (;;) {
    FoundCheckpoint found;
    std::vector<size_t> used;
    on_all_ranks(comm, "read the checkpoint's manifest", [&] {
      found = locate_checkpoint(dir, damaged);
      if (judge) judge(found.info());
      std::vector<std::string> mismatches;
      used = match(found.manifest, state, mismatches);
      fail_mismatch(found.dir, mismatches);
    });
    check_same_step(comm, dir, found.manifest.label.step);
    const bool left_out = check_all_used(found, state, used, comm);
    const std::string damage = damage_read(found, used, state, comm);
    if (damage.empty()) {
      CheckpointInfo info = found.info();
      info.codec_remarks = remarks_on_codecs(found.manifest, state, used, left_out);
      judge_copies(found.manifest, state, used, info);
      return info;
    }
    if (found.named) throw UserError(damage);
    damaged[found.dir] = damage;
  }
}

void load_checkpoint_weights(const std::string& dir, StateRegister& weights) {
  const FoundCheckpoint found = locate_checkpoint(dir);
  std::vector<std::string> mismatches;
  const std::vector<size_t> used = match(found.manifest, weights, mismatches);
  fail_mismatch(found.dir, mismatches);
  read_values(found, used, weights);
}

struct CheckpointWeights::Content {
  explicit Content(const std::string& dir) : found(locate_checkpoint(dir)), reader(found) {}

  FoundCheckpoint found;
  SliceReader reader;
  StateRegister weights;
  std::vector<size_t> used;  // the manifest's tensor of each weight
  std::vector<std::byte> stored;
};

CheckpointWeights::CheckpointWeights(const std::string& dir, StateRegister weights)
    : content_(std::make_unique<Content>(dir)) {
  std::vector<std::string> mismatches;
  content_->used = match(content_->found.manifest, weights, mismatches);
  fail_mismatch(content_->found.dir, mismatches);
  content_->weights = std::move(weights);
}

CheckpointWeights::~CheckpointWeights() = default;

void CheckpointWeights::read(size_t weight, int64_t begin, int64_t count, float* to) {
  Content& c = *content_;
  StateEntry piece = c.weights[weight];
  piece.begin = begin;
  piece.local = {to, {count}, DType::f32};
  read_entry(c.reader, c.found.manifest.tensors[c.used[weight]], piece, c.stored);
}

}  // namespace dstrain
