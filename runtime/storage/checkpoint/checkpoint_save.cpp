#include "runtime/storage/checkpoint/checkpoint_save.h"

#include <algorithm>
#include <filesystem>

#include "runtime/core/checksum.h"
#include "runtime/core/devices/host_pieces.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/files/input_file.h"
#include "runtime/core/files/no_room_error.h"
#include "runtime/core/formats/safetensors.h"
#include "runtime/storage/checkpoint/checkpoint_places.h"
#include "runtime/storage/disk/free_space.h"
#include "runtime/storage/on_all_ranks.h"

namespace dstrain {
namespace {

constexpr int64_t kMaxPartBytes = int64_t{1} << 30;

SafetensorsType file_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {"F64", 8};
    case DType::f32:
      return {"F32", 4};
    case DType::i32:
      return {"I32", 4};
    case DType::bf16:
      return {"BF16", 2};
    case DType::f16:
      return {"F16", 2};
    case DType::u8:
      break;
  }
  return {"U8", 1};
}

// Returns the entries that this rank writes, widest elements first, so that all are aligned in the file.
std::vector<const StateEntry*> owned_entries(const StateRegister& state) {
  std::vector<const StateEntry*> owned;
  for (const StateEntry& entry : state) {
    const int64_t n = entry.local.elements();
    check(entry.local.dtype == entry.dtype && entry.begin >= 0 &&
              entry.begin + n <= elements_held(entry),
          "{}/{} is registered as {} {}, and this rank holds [{}, {}) as {}", entry.name,
          entry.slot, name_of(entry.dtype), to_string(entry.global_shape), entry.begin,
          entry.begin + n, name_of(entry.local.dtype));
    if (entry.owner && n > 0) owned.push_back(&entry);
  }
  std::stable_sort(owned.begin(), owned.end(), [](const StateEntry* a, const StateEntry* b) {
    return size_of(a->dtype) > size_of(b->dtype);
  });
  return owned;
}

// Returns the tensor of a slice in the file. Its name is for readers of that file only.
SafetensorsTensor file_tensor(const StateEntry& entry) {
  SafetensorsTensor t{.name = fmt::format("{}:{}", entry.name, entry.slot),
                      .type = file_type(entry.dtype),
                      .shape = {}};
  const bool is_part = entry.part.by != TensorPart::By::nothing;
  if (is_part) t.name += fmt::format("/{}-of-{}", entry.part.part, entry.part.parts);
  if (!is_part && entry.local.elements() == saved_shape(entry).elements()) {
    for (int i = 0; i < entry.global_shape.rank; ++i) t.shape.push_back(entry.global_shape[i]);
  } else {
    t.name += fmt::format("@{}", saved_begin(entry));
    t.shape = {entry.local.elements()};
  }
  return t;
}

// Writes rank_R.safetensors and its part of the manifest, rank_R.json.
void write_rank(const std::string& dir, int rank, const StateRegister& state) {
  const std::vector<const StateEntry*> owned = owned_entries(state);
  Manifest part;
  // Every tensor is listed, so that one without an owner is detected.
  for (const StateEntry& entry : state)
    part.tensors.push_back({entry.name, entry.slot, entry.dtype, saved_shape(entry), {}});
  std::vector<SafetensorsTensor> tensors;
  for (const StateEntry* entry : owned) tensors.push_back(file_tensor(*entry));
  const std::string head = make_safetensors_header(tensors);
  part.files.push_back(
      {.name = rank_stem(rank) + ".safetensors",
       .bytes = tensors.empty() ? static_cast<int64_t>(head.size()) : tensors.back().end});
  File file = File::create(dir + "/" + part.files[0].name);
  file.write_at(head.data(), static_cast<int64_t>(head.size()), 0);
  for (size_t i = 0; i < owned.size(); ++i) {
    const StateEntry& entry = *owned[i];
    CheckpointSlice slice{.begin = saved_begin(entry),
                          .elements = entry.local.elements(),
                          .file = 0,
                          .offset = tensors[i].begin,
                          .checksums = {},
                          .part = entry.part};
    const auto write_block = [&](int64_t done, const std::byte* bytes, int64_t n) {
      slice.checksums.push_back(checksum_of(bytes, n));
      file.write_at(bytes, n, slice.offset + done);
    };
    const int64_t all = entry.local.bytes();
    if (entry.device)
      for_host_pieces(*entry.device, entry.local.data, all, kChecksumBlock, HostAccess::read,
                      write_block);
    else
      for (int64_t done = 0; done < all; done += kChecksumBlock)
        write_block(done, entry.local.as<const std::byte>() + done,
                    std::min(kChecksumBlock, all - done));
    part.tensors.push_back(
        {entry.name, entry.slot, entry.dtype, saved_shape(entry), {std::move(slice)}});
  }
  file.sync();
  file.close();
  const std::string text = manifest_text(part);
  File list = File::create(fmt::format("{}/{}.json", dir, rank_stem(rank)));
  list.write_at(text.data(), static_cast<int64_t>(text.size()), 0);
  list.close();
}

// Merges the ranks' parts into the manifest.
void write_manifest(const std::string& dir, int ranks, const CheckpointLabel& label) {
  Manifest whole;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = fmt::format("{}/{}.json", dir, rank_stem(rank));
    merge_manifest(
        whole,
        parse_manifest(read_input_file(path, "a part of the manifest", kMaxPartBytes), path));
  }
  for (CheckpointTensor& tensor : whole.tensors) {
    sort_slices(tensor);
    const std::string problem = coverage_error(whole, tensor);
    check(problem.empty(), "the ranks' registers do not cover every tensor: {}", problem);
  }
  whole.label = label;
  write_file(fmt::format("{}/{}", dir, kManifestName), manifest_text(whole));
  for (int rank = 0; rank < ranks; ++rank)
    remove_tree(fmt::format("{}/{}.json", dir, rank_stem(rank)));
}

// The saving of one checkpoint.
class Saving {
 public:
  Saving(CheckpointPlace place, const CheckpointLabel& label, const StateRegister& state,
         Communicator& comm)
      : place_(std::move(place)),
        label_(label),
        state_(state),
        comm_(comm),
        bytes_(checkpoint_bytes(state, comm)) {}

  // Writes everything; collective. A failure leaves nothing but the checkpoints that were there.
  std::optional<AgreedFailure> attempt(const std::string& output_dir) {
    try {
      auto failure =
          failure_on_any_rank(comm_, "prepare a checkpoint", [&] { prepare(output_dir); });
      if (!failure)
        failure = failure_on_any_rank(comm_, "write its part of a checkpoint",
                                      [&] { write_rank(place_.building, comm_.rank(), state_); });
      if (!failure)
        failure = failure_on_any_rank(comm_, "complete a checkpoint", [&] { complete(); });
      if (failure) discard();
      return failure;
    } catch (...) {
      discard();
      throw;
    }
  }

 private:
  bool root() const { return comm_.rank() == 0; }

  void prepare(const std::string& output_dir) {
    if (!root()) return;
    make_directory(place_.root);
    sync_directory(output_dir);
    remove_leftovers(place_.root);
    const std::string lack = lack_of_space(fmt::format("saving step {}", label_.step), bytes_,
                                           free_bytes(place_.root), place_.root);
    if (!lack.empty())
      throw NoRoomError(lack + ": make room there; dstrain.keep_last removes old checkpoints");
    make_directory(place_.building);
  }

  void complete() {
    if (!root()) return;
    write_manifest(place_.building, comm_.size(), label_);
    if (!label_.lineage.id.empty()) write_lineage(place_.root, label_.lineage);
    put_in_place(place_);
  }

  // Removes what a failed attempt has written, as far as possible.
  void discard() {
    if (!root()) return;
    std::error_code ignored;
    std::filesystem::remove_all(place_.building, ignored);
  }

  CheckpointPlace place_;
  const CheckpointLabel& label_;
  const StateRegister& state_;
  Communicator& comm_;
  int64_t bytes_ = 0;
};

}  // namespace

int64_t checkpoint_bytes(const StateRegister& state, Communicator& comm) {
  constexpr double manifest_bytes = 300;  // of a tensor, with its name, in file and manifest
  double mine = 0;
  for (const StateEntry* entry : owned_entries(state))
    mine += static_cast<double>(entry->local.bytes()) + manifest_bytes;
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  double sum = 0;
  for (const double bytes : all) sum += bytes;
  return static_cast<int64_t>(sum);
}

std::optional<AgreedFailure> try_save_checkpoint(const std::string& output_dir,
                                                 const CheckpointLabel& label,
                                                 const StateRegister& state, Communicator& comm,
                                                 const std::function<bool()>& make_room) {
  Saving saving(CheckpointPlace(output_dir, label.step), label, state, comm);
  std::optional<AgreedFailure> failure = saving.attempt(output_dir);
  if (!failure || !failure->can_go_on || !failure->no_room) return failure;
  const double made = comm.rank() == 0 && make_room() ? 1 : 0;
  std::vector<double> all(static_cast<size_t>(comm.size()));
  try {
    comm.gather_values({&made, 1}, all);
  } catch (
      ...) {  // a rank that has the answer stopped the run; this rank's own error says more than that
    if (failure->own) std::rethrow_exception(failure->error);
    throw;
  }
  return all[0] != 0 ? saving.attempt(output_dir) : failure;
}

void save_checkpoint(const std::string& output_dir, const CheckpointLabel& label,
                     const StateRegister& state, Communicator& comm) {
  if (const auto failure = try_save_checkpoint(output_dir, label, state, comm))
    std::rethrow_exception(failure->error);
}

}  // namespace dstrain
