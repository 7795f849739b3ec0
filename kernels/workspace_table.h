// The table of a kernel library's ops of family memory_bound whose kernels need scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/ir/kernel.h"

namespace dstrain {

// A row of the table: an op and the bytes of scratch memory that its kernel needs.
struct WorkspaceRow {
  OpKind op;
  int64_t (*bytes)(const KernelSpec&);
};

// Returns the bytes of scratch memory that the kernel of `spec` needs: 0 where the table has no row of its op.
template <size_t n>
int64_t workspace_bytes(const WorkspaceRow (&table)[n], const KernelSpec& spec) {
  for (const WorkspaceRow& row : table)
    if (row.op == spec.op) return row.bytes(spec);
  return 0;
}

}  // namespace dstrain
