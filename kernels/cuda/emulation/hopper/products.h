// Products of warpgroups (wgmma). A warp computes its 16 rows when it issues a product, and gets them when it has waited for
// the product's group: until then its sums are NaN. Operands in shared memory must be the same when the product is issued,
// when it was waited for, and for all four warps. Sums are f32 over ascending depth; the hardware's order and precision
// within an instruction are not specified.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "kernels/cuda/emulation/threads.h"
#include "runtime/core/dtype.h"

namespace dstrain::emulated {

inline constexpr int kGroupWarps = 4;     // of a warpgroup
inline constexpr int kProductDepth = 16;  // of an instruction with 16-bit operands

// An instruction m64nNk16, N = 8 tiles. sums = a b, or sums + a b with `add`. A is 64 x 16 and B is 16 x N; in shared memory
// both have their 16 elements of the depth side by side, or with `transposed` the elements of a column of A or a row of B.
struct ProductShape {
  DType dtype = DType::bf16;
  int tiles = 8;
  bool add = true;
  bool a_in_registers = false;
  bool a_transposed = false, b_transposed = false;

  bool operator==(const ProductShape&) const = default;
};

// What one lane gives: its sums (4 for each tile of 8 columns), and its operands, as registers or as matrix descriptors.
struct ProductLane {
  float* sums;
  uint32_t a[4];
  uint64_t a_matrix, b_matrix;
};

// An operand in shared memory, of up to 256 rows or columns: [row or column][depth].
using OperandRows = std::array<std::array<uint16_t, kProductDepth>, 256>;

// Reads the operand of a matrix descriptor: `count` rows of A or columns of B. Throws InternalError if it is not inside of
// `bytes` bytes of shared memory.
void read_operand(OperandRows& rows, int count, const unsigned char* shared, size_t bytes,
                  uint64_t matrix, bool transposed);

// The products of a block's warps. All functions throw InternalError for what the PTX ISA leaves undefined.
class Products {
 public:
  Products();
  void clear(unsigned warps);

  // Each lane calls these for itself.
  void begin(unsigned thread);
  void commit(unsigned thread);
  // Afterwards at most `pending` of the groups that the thread has committed are not done.
  void wait(unsigned thread, unsigned pending, const unsigned char* shared, size_t bytes);
  // Gives a thread the sums of products that are done. Returns false if there are none with this address.
  bool take(unsigned thread, float* sums, int tiles);

  // Issues a product of a warp.
  void issue(unsigned warp, const ProductShape& shape, void* const* lanes,
             const unsigned char* shared, size_t bytes);

  // Throws InternalError if a product was not waited for, or if warps of a warpgroup have issued different numbers of them.
  void check_ended() const;

 private:
  static constexpr size_t kMostPending = 8, kMostProducts = 16, kHistory = 512;

  struct Thread {
    unsigned committed = 0, done = 0;  // groups
    bool open = false;                 // between begin and commit
  };
  // The operands of a product that is not done, for the comparison when it is.
  struct Operands {
    ProductShape shape;
    uint64_t a_matrix, b_matrix, hash;
  };
  // Sums that one or several products of a group add to.
  struct Pending {
    unsigned group;  // the last group with a product of these sums
    int tiles;
    unsigned taken;  // a bit for each lane that has its sums
    size_t products;
    float* registers[kWarp];
    std::array<Operands, kMostProducts> operands;
    float sums[kWarp / 2][256];
  };
  struct Warp {
    size_t count = 0;
    uint64_t issued = 0;
    std::array<Pending, kMostPending> pending;
  };
  // What the first warp of a warpgroup has issued as product number `number`.
  struct Issued {
    uint64_t number = 0, hash = 0;
  };

  Pending& pending_of(Warp& warp, const ProductShape& shape, void* const* lanes, unsigned group);
  static uint64_t hash_operands(const ProductShape& shape, uint64_t a_matrix, uint64_t b_matrix,
                                const unsigned char* shared, size_t bytes, OperandRows& a,
                                OperandRows& b);

  unsigned warps_ = 0;
  bool used_ = true;  // since clear()
  std::array<Thread, kMostBlockThreads> threads_;
  std::unique_ptr<std::array<Warp, kMostBlockThreads / kWarp>> of_warps_;
  std::array<std::array<Issued, kHistory>, kMostBlockThreads / kWarp / kGroupWarps> history_;
};

}  // namespace dstrain::emulated
