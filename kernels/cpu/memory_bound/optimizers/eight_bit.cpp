// adam_8bit, lion_8bit: AdamW and Lion with state in 8-bit blocks (runtime/core/blocks/dynamic_code.h). The state is
// unpacked, changed as adam.cpp and lion.cpp say, and packed again; the weights move by what it is before it is packed.
// Both do nothing if state->skip is set. Minimum memory traffic: adam_8bit 16 bytes per parameter (reads g, p, m, v; writes
// p, m, v), lion_8bit, without v, 14; 2 more with the 16-bit copy; a 16-bit gradient saves 2.
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/optimizers/blocks_8bit.h"
#include "kernels/cpu/memory_bound/optimizers/steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/optimizers/eight_bit.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/optimizers/blocks_8bit-inl.h"
#include "kernels/cpu/memory_bound/optimizers/steps-inl.h"
#include "kernels/cpu/memory_bound/optimizers/update-inl.h"
#include "runtime/core/isa/best_variant.h"

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

void adam_8bit_range(const AdamStep& s, const UpdateOperands& o, const Slot8Bits& m_slot,
                     const Slot8Bits& v_slot, int64_t begin, int64_t end) {
  const AdamPacks packs(s);
  for_state_blocks(begin, end, [&](int64_t first, int64_t last) SIMD_INLINE {
    BlockOf8Bits<true> m_block(m_slot, first);
    BlockOf8Bits<false> v_block(v_slot, first);
    update_range(o, first, last, [&](int64_t i, auto n, Pack p, Pack grad) SIMD_INLINE {
      Pack m = m_block.old(i - first, n), v = v_block.old(i - first, n);
      const Pack next = packs.next(p, grad, m, v);
      m_block.take(m, i - first, n);
      v_block.take(v, i - first, n);
      return next;
    });
    m_block.finish(last - first);
    v_block.finish(last - first);
  });
}

void lion_8bit_range(const LionStep& s, const UpdateOperands& o, const Slot8Bits& m_slot,
                     int64_t begin, int64_t end) {
  const LionPacks packs(s);
  for_state_blocks(begin, end, [&](int64_t first, int64_t last) SIMD_INLINE {
    BlockOf8Bits<true> m_block(m_slot, first);
    update_range(o, first, last, [&](int64_t i, auto n, Pack p, Pack grad) SIMD_INLINE {
      Pack m = m_block.old(i - first, n);
      const Pack next = packs.next(p, grad, m);
      m_block.take(m, i - first, n);
      return next;
    });
    m_block.finish(last - first);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_adam_8bit(const KernelSpec& spec) {
  return update_kernel(
      spec, 5,
      [attrs = attrs_as<AdamAttrs>(spec.attrs)](const KernelCall& call, const UpdateOperands& o) {
        return [o, step = AdamStep(*call.state, attrs), m = slot_of(call, 1), v = slot_of(call, 3)](
                   int64_t begin, int64_t end) {
          DSTRAIN_BEST(adam_8bit_range)(step, o, m, v, begin, end);
        };
      });
}

std::unique_ptr<Kernel> make_lion_8bit(const KernelSpec& spec) {
  return update_kernel(
      spec, 3,
      [attrs = attrs_as<LionAttrs>(spec.attrs)](const KernelCall& call, const UpdateOperands& o) {
        return [o, step = LionStep(*call.state, attrs), m = slot_of(call, 1)](int64_t begin,
                                                                              int64_t end) {
          DSTRAIN_BEST(lion_8bit_range)(step, o, m, begin, end);
        };
      });
}

}  // namespace dstrain::simd
#endif
