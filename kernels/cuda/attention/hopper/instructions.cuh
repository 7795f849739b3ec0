// The instructions of Hopper GPUs that attention uses, one function each: tensor memory copies, the barriers in shared memory
// that they complete on, and products of warpgroups. The rest of this folder is ordinary CUDA C++. GPUs have
// kernels/cuda/attention/hopper/ptx.cuh, the emulated device kernels/cuda/emulation/hopper/instructions.h, which both provide:
//   has_hopper_instructions()  whether the current device executes these
//   CUtensorMap, Swizzle       a tensor map, and how copies with it exchange chunks of rows: none or bytes128
//   make_tensor_map(at, dtype, swizzle, sizes, strides, box)     strides in bytes, of dimensions 1 on; the last one is unused.
//                              Throws InternalError for a map that the driver refuses
//   panel_memory()             a block's dynamic shared memory, at a multiple of 1024 bytes
//   shared_address(p)          the address of p in shared memory
//   barrier_init(word, arrivals)     publish_barriers() follows, and the block's threads must meet
//   barrier_arrive(word), barrier_arrive_expecting(word, bytes)
//   barrier_wait(word, parity) returns when the phase of this parity, the current one or the one before it, has ended
//   copy_box(to, map, coordinates, word)     starts a copy, of which zeros are what lies outside of the tensor
//   begin_products()           orders the warpgroup's accesses to registers before the products that follow
//   wgmma<T, kFrom>(sums, a, b, add)   sums[kFrom ...] (+)= a b^T over 16 columns of two panels in shared memory, m64n64k16;
//                              replaces the sums unless `add`. T: bf16 or f16
//   wgmma<T, kFrom>(sums, a, b)        sums[kFrom ...] += a b over 16 rows of the panel b; a in registers
//   commit_products()          ends a group of products, which run beside what follows
//   wait_products<kPending>()  returns when at most kPending groups are not done. Their sums must pass finished(sums) before
//                              they are used
#pragma once

#include "kernels/cuda/attention/mma.cuh"

#ifdef __CUDACC__
#include "kernels/cuda/attention/hopper/ptx.cuh"
#else
#include "kernels/cuda/emulation/hopper/instructions.h"
#endif
