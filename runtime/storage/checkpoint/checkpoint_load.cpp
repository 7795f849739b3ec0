#include "runtime/storage/checkpoint/checkpoint_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "runtime/core/checksum.h"
#include "runtime/storage/atomic_file.h"
#include "runtime/storage/checkpoint/checkpoint_places.h"
#include "runtime/storage/mismatches.h"
#include "runtime/storage/on_all_ranks.h"

namespace dstrain {
namespace {

// Reads ranges of tensors from the slices that hold them, and verifies the checksum of each block.
class SliceReader {
 public:
  explicit SliceReader(const FoundCheckpoint& found)
      : found_(found), files_(found.manifest.files.size()) {}

  void read(const CheckpointTensor& tensor, int64_t begin, int64_t count, std::byte* to) {
    const int64_t end = begin + count, size = size_of(tensor.dtype);
    for (const CheckpointSlice& slice : tensor.slices) {
      const int64_t from = std::max(begin, slice.begin);
      const int64_t until = std::min(end, slice.begin + slice.elements);
      if (from < until)
        read_bytes(tensor, slice, (from - slice.begin) * size, (until - slice.begin) * size,
                   to + (from - begin) * size);
    }
  }

 private:
  const File& file(int index) {
    const auto i = static_cast<size_t>(index);
    if (!files_[i])
      files_[i] = File::open(found_.dir + "/" + found_.manifest.files[i].name, "checkpoint file");
    return *files_[i];
  }

  // Bytes [from, until) of the slice.
  void read_bytes(const CheckpointTensor& tensor, const CheckpointSlice& slice, int64_t from,
                  int64_t until, std::byte* to) {
    const int64_t bytes = slice.elements * size_of(tensor.dtype);
    for (int64_t block = from / kChecksumBlock; block * kChecksumBlock < until; ++block) {
      const int64_t first = block * kChecksumBlock, last = std::min(first + kChecksumBlock, bytes);
      if (first >= from && last <= until) {
        read_block(tensor, slice, block, last - first, to + (first - from));
        continue;
      }
      scratch_.resize(static_cast<size_t>(kChecksumBlock));
      read_block(tensor, slice, block, last - first, scratch_.data());
      const int64_t a = std::max(first, from), b = std::min(last, until);
      std::memcpy(to + (a - from), scratch_.data() + (a - first), static_cast<size_t>(b - a));
    }
  }

  void read_block(const CheckpointTensor& tensor, const CheckpointSlice& slice, int64_t block,
                  int64_t bytes, std::byte* to) {
    const int64_t at = slice.offset + block * kChecksumBlock;
    const File& from = file(slice.file);
    from.read_at(to, bytes, at);
    if (checksum_of(to, bytes) != slice.checksums[static_cast<size_t>(block)])
      fail_user(
          "{}: tensor {}/{} is damaged: the checksum of bytes [{}, {}) is not that of the "
          "manifest; use another checkpoint",
          from.path(), tensor.name, tensor.slot, at, at + bytes);
  }

  const FoundCheckpoint& found_;
  std::vector<std::optional<File>> files_;
  std::vector<std::byte> scratch_;
};

// Returns the index of the manifest's tensor for each entry of `state`; mismatches are added to `mismatches`.
std::vector<size_t> match(const Manifest& manifest, const StateRegister& state,
                          std::vector<std::string>& mismatches) {
  std::map<std::pair<std::string_view, std::string_view>, size_t> index;
  for (size_t i = 0; i < manifest.tensors.size(); ++i)
    index[{manifest.tensors[i].name, manifest.tensors[i].slot}] = i;
  std::vector<size_t> found;
  for (const StateEntry& entry : state) {
    const auto it = index.find({entry.name, entry.slot});
    if (it == index.end()) {
      mismatches.push_back(fmt::format("{}/{} {} is missing", entry.name, entry.slot,
                                       to_string(entry.global_shape)));
      continue;
    }
    const CheckpointTensor& tensor = manifest.tensors[it->second];
    if (tensor.shape != entry.global_shape || tensor.dtype != entry.dtype)
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
      "optimizer "
      "it was saved with:\n  {}",
      dir, mismatches.size(), listed(mismatches));
}

// Throws UserError if no rank uses a tensor of the checkpoint, which would be lost. Collective.
void check_all_used(const FoundCheckpoint& found, const std::vector<size_t>& used,
                    Communicator& comm) {
  const auto count = static_cast<int64_t>(found.manifest.tensors.size());
  std::vector<int32_t> users(found.manifest.tensors.size());
  for (const size_t i : used) ++users[i];
  if (count > 0) comm.all_reduce({users.data(), {count}, DType::i32}).wait();
  std::vector<std::string> mismatches;
  for (size_t i = 0; i < users.size(); ++i)
    if (users[i] == 0)
      mismatches.push_back(fmt::format("{}/{} {} is not part of it", found.manifest.tensors[i].name,
                                       found.manifest.tensors[i].slot,
                                       to_string(found.manifest.tensors[i].shape)));
  fail_mismatch(found.dir, mismatches);
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

// Reads the values of this rank's slices into `state`. Throws UserError if they are damaged.
void read_values(const FoundCheckpoint& found, const std::vector<size_t>& used,
                 StateRegister& state) {
  SliceReader reader(found);
  std::vector<std::byte> buffer;  // staging buffer for a device
  for (size_t i = 0; i < state.size(); ++i) {
    const StateEntry& entry = state[i];
    const CheckpointTensor& tensor = found.manifest.tensors[used[i]];
    const int64_t n = entry.local.elements(), size = size_of(entry.dtype);
    if (!entry.device) {
      reader.read(tensor, entry.begin, n, entry.local.as<std::byte>());
      continue;
    }
    buffer.resize(static_cast<size_t>(kChecksumBlock));
    for (int64_t at = 0; at < n; at += kChecksumBlock / size) {
      const int64_t count = std::min(kChecksumBlock / size, n - at);
      reader.read(tensor, entry.begin + at, count, buffer.data());
      entry.device->upload(entry.local.as<std::byte>() + at * size, buffer.data(), count * size);
    }
  }
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
    check_all_used(found, used, comm);
    const std::string damage = damage_read(found, used, state, comm);
    if (damage.empty()) return found.info();
    if (found.named) throw UserError(damage);
    damaged[found.dir] = damage;
  }
}

}  // namespace dstrain
