// Where the parity suite's kernels run. A test program is linked with one of tests/kernels/backends.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain::parity {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<Kernel> make(const KernelSpec& spec) const = 0;
  virtual int64_t workspace_bytes(const KernelSpec& spec) const = 0;
  // Where kernels find the `bytes` at `host`, as they are now.
  virtual void* enter(void* host, int64_t) const { return host; }
  // Returns when every kernel has run and what entered is at its host address again, with what kernels made
  // of it. Throws what a kernel threw.
  virtual void finish() const {}
};

// Kernels of the processor, by the two functions of a family (make_product, product_workspace_bytes).
class Bodies final : public Backend {
 public:
  using Make = std::unique_ptr<Kernel>(const KernelSpec&);
  using Bytes = int64_t(const KernelSpec&);

  constexpr Bodies(Make* made_by, Bytes* bytes) : make_(made_by), bytes_(bytes) {}
  std::unique_ptr<Kernel> make(const KernelSpec& spec) const override { return make_(spec); }
  int64_t workspace_bytes(const KernelSpec& spec) const override { return bytes_(spec); }

 private:
  Make* make_;
  Bytes* bytes_;
};

// The backend that this program tests.
const Backend& backend();

}  // namespace dstrain::parity
