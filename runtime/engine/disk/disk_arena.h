// DiskArena: the tensors of a rank that are on disk, in files that live as long as this object. Addresses without
// memory (Memory::addresses) name their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/plan/plan.h"
#include "runtime/storage/disk/disk_store.h"

namespace dstrain {

class DiskArena final : public RemoteMemory {
 public:
  // Creates the files in the job's nvme_paths. They read as zeros. `base`: the address of the first byte. Throws
  // UserError if there is too little space or if the files cannot be made.
  DiskArena(const Plan& plan, const Job& job, const std::byte* base);

  // Begin to read a tensor on disk to memory of the host, or to write it from there.
  DiskStore::Ticket read(const Tensor& from, const Tensor& to);
  DiskStore::Ticket write(const Tensor& from, const Tensor& to);

  // Any bytes of one tensor.
  void download(void* host, const void* from, int64_t bytes) override;
  void upload(void* to, const void* host, int64_t bytes) override;

 private:
  struct ExtentPosition {
    int extent = 0;
    int64_t offset = 0;
  };
  // Returns where bytes of a tensor are; of no bytes, any position. Throws InternalError if they are not all in one extent.
  ExtentPosition position_of(const void* address, int64_t bytes) const;

  const std::byte* base_;
  std::vector<int64_t> begins_;  // of the extents, ascending
  int passing_ = -1;             // the extent of what does not live for the whole run
  IoCalls calls_;
  std::optional<SwapFiles> files_;
  std::optional<DiskStore> store_;
};

}  // namespace dstrain
