#include "kernels/cpu/products/panel_product.h"

#include <algorithm>

#include "kernels/cpu/products/amx_block.h"
#include "kernels/cpu/products/dot_block.h"
#include "kernels/cpu/products/panel_gemm.h"
#include "kernels/cpu/products/panel_pack.h"
#include "kernels/cpu/products/share.h"
#include "kernels/operands.h"
#include "runtime/core/isa/isa.h"
#include "runtime/core/threads/parts.h"

namespace dstrain {
namespace {

constexpr int64_t kChunkDepth = 128;   // blocks of k multiplied before sums are written to memory
constexpr int64_t kChunkPanels = 128;  // panels of B packed at a time
constexpr int64_t kMaxAPanels = 64;
constexpr int64_t kPackPanels = 4;  // panels of B that a thread packs at a time
constexpr int64_t kPackDepth = 16;
constexpr int64_t kPiecePanels = 4;      // panels of B that a thread multiplies at a time
constexpr int64_t kMaxRowsPacked = 512;  // with more rows the cost of packing is negligible

const BlockKernel& block_kernel() {
  return max_isa() == Isa::amx ? amx_block() : dot_block();
}

// How a product is divided; depends on its sizes and threads alone. The order in which an element's terms are
// added depends on the division of k, which does not depend on the threads.
struct Cut {
  int64_t m_panels, n_panels, depth;  // depth in blocks of k
  int64_t chunk_panels, chunk_depth;  // the part of B that is packed and multiplied at a time
  bool b_past_caches;
  int64_t k_chunks;
  int64_t m_threads, n_threads;  // the grid of threads over the result
  int64_t a_panels;              // panels of A that a thread packs at a time: a stripe

  explicit Cut(const Product& p)
      : m_panels(panels_of(p.m())), n_panels(panels_of(p.n())), depth(depth_blocks_of(p.k())) {
    const BlockKernel& kernel = block_kernel();
    k_chunks = ceil_div(depth, kChunkDepth);
    chunk_depth = ceil_div(depth, k_chunks);
    const int64_t most =
        std::clamp<int64_t>(kernel.a_bytes / (chunk_depth * kBlockBytes), 1, kMaxAPanels);
    // With few rows B is used once: it is packed right before its use, as much as fits in the caches.
    const bool b_used_once = m_panels <= most && !p.packed;
    const int64_t cached = std::max<int64_t>(1, kernel.b_bytes / (chunk_depth * kBlockBytes));
    b_past_caches = kernel.b_past_caches && !b_used_once;
    chunk_panels = std::min(n_panels, kChunkPanels);
    if (b_used_once) chunk_panels = std::min(chunk_panels, cached * p.threads);
    choose_grid(p.threads);
    const int64_t share = ceil_div(m_panels, m_threads);
    a_panels = ceil_div(share, ceil_div(share, most));
  }

  // Chooses the grid with the least work for the busiest thread. A thread packs its own A.
  void choose_grid(int64_t threads) {
    int64_t best = 0;
    for (int64_t columns = 1; columns <= threads; ++columns) {
      if (threads % columns != 0) continue;
      const int64_t work =
          ceil_div(m_panels, threads / columns) * (ceil_div(chunk_panels, columns) + 1);
      if (best == 0 || work < best) {
        best = work;
        m_threads = threads / columns;
        n_threads = columns;
      }
    }
  }
};

// The sizes of the workspace's parts in bytes, multiples of 64.
struct Scratch {
  int64_t b, a, tiles, sums;  // a and tiles: per thread
  static constexpr int64_t kHeld = 64;

  Scratch(const Product& p, const Cut& cut)
      : b(p.packed ? 0 : cut.chunk_panels * cut.chunk_depth * kBlockBytes),
        a(cut.a_panels * cut.chunk_depth * kBlockBytes),
        tiles(multiply_scratch_bytes(cut.a_panels)),
        sums(cut.k_chunks > 1 && p.op != OpKind::linear_weight_grad
                 ? ceil_div(p.m() * p.n(), 16) * 64
                 : 0) {}
  int64_t of_thread() const { return a + tiles + kHeld; }
  int64_t bytes(int threads) const { return b + of_thread() * threads + sums; }
};

TileSource source_a(const Product& p, const Tensor& t) {
  TileSource s{t.as<const uint16_t>(), p.k(), p.m(), p.k(), false};
  if (p.op == OpKind::linear_weight_grad) {
    s.stride = p.out_features;
    s.depth_major = true;
  }
  return s;
}

TileSource source_b(const Product& p, const Tensor& t) {
  return {t.as<const uint16_t>(), p.in_features, p.n(), p.k(), p.op != OpKind::linear};
}

// Packs a part of B on several threads.
void pack_b_together(int threads, const TileSource& source, const PanelRange& range, char* to,
                     int64_t panel_bytes, bool past_caches) {
  const int64_t groups = ceil_div(range.count, kPackPanels);
  const int64_t depths = ceil_div(range.block_count, kPackDepth);
  const auto pack = [&](int64_t i) {
    const int64_t panel = i / depths * kPackPanels, block = i % depths * kPackDepth;
    const PanelRange part{range.first + panel, std::min(kPackPanels, range.count - panel),
                          range.first_block + block,
                          std::min(kPackDepth, range.block_count - block)};
    pack_b(source, part, to + panel * panel_bytes + block * kBlockBytes, panel_bytes, past_caches);
  };
  run_in_turns(threads, groups * depths, pack);
}

class PanelProduct final : public Kernel {
 public:
  explicit PanelProduct(const Product& product)
      : p_(product), cut_(product), scratch_(product, cut_) {}

  void run(const KernelCall& call) const override {
    for (int64_t worker = 0; worker < p_.threads; ++worker) held(call, worker) = {};
    for (int64_t n = 0; n < cut_.n_panels; n += cut_.chunk_panels) {
      for (int64_t k = 0; k < cut_.depth; k += cut_.chunk_depth) {
        const PanelRange b{n, std::min(cut_.chunk_panels, cut_.n_panels - n), k,
                           std::min(cut_.chunk_depth, cut_.depth - k)};
        if (!p_.packed)
          pack_b_together(p_.threads, source_b(p_, call.in[1]), b, scratch(call),
                          b.block_count * kBlockBytes, cut_.b_past_caches);
        run_lists(
            p_.threads, [&](int64_t owner) { return share_of(owner, b).items(); },
            [&](int64_t worker, int64_t owner, int64_t item) {
              const BlockScope scope(kernel_);
              multiply_item(call, b, worker, owner, item);
            });
      }
    }
  }

 private:
  Share share_of(int64_t owner, const PanelRange& b) const {
    return {part_of(cut_.m_panels, owner / cut_.n_threads, cut_.m_threads),
            part_of(b.count, owner % cut_.n_threads, cut_.n_threads), cut_.a_panels, kPiecePanels};
  }

  // The stripe of A that a worker has packed: its first panel and its first block of k.
  struct Held {
    int64_t a_panel = -1, depth_block = -1;
    bool operator==(const Held&) const = default;
  };
  static_assert(sizeof(Held) <= Scratch::kHeld);

  char* scratch(const KernelCall& call) const {
    return workspace<char>(call, scratch_.bytes(p_.threads));
  }
  char* scratch_of(const KernelCall& call, int64_t worker) const {
    return scratch(call) + scratch_.b + scratch_.of_thread() * worker;
  }
  Held& held(const KernelCall& call, int64_t worker) const {
    return *reinterpret_cast<Held*>(scratch_of(call, worker) + scratch_.a + scratch_.tiles);
  }

  // Multiplies an item of the owner's share of the chunk. A is packed even if its rows could be read in place, because
  // loading tiles from distant lines costs more than the copy; once for all items of a stripe that a worker has.
  void multiply_item(const KernelCall& call, const PanelRange& b, int64_t worker, int64_t owner,
                     int64_t item) const {
    const Share share = share_of(owner, b);
    const Part stripe = share.stripe_of(item), piece = share.piece_of(item);
    char* own = scratch_of(call, worker);
    PanelBlock block;
    block.a = source_a(p_, call.in[0]);
    block.packed_a = own;
    block.first_a_panel = stripe.first;
    block.a_panels = stripe.count;
    block.first_depth_block = b.first_block;
    block.depth_blocks = b.block_count;
    block.b_panels = piece.count;
    block.first_b_panel = b.first + piece.first;
    if (p_.packed) {
      block.b_panel_bytes = cut_.depth * kBlockBytes;
      block.b = call.in[packed_operand(p_.op)].as<const char>() +
                block.first_b_panel * block.b_panel_bytes + b.first_block * kBlockBytes;
    } else {
      block.b_panel_bytes = b.block_count * kBlockBytes;
      block.b = scratch(call) + piece.first * block.b_panel_bytes;
    }
    const Held needed{block.first_a_panel, b.first_block};
    block.a_is_packed = held(call, worker) == needed;
    multiply_panels(kernel_, block, epilogue_of(call, b),
                    reinterpret_cast<float*>(own + scratch_.a));
    held(call, worker) = needed;
  }

  // The sums of all but the last chunk of k are stored in f32, in the result itself or in the workspace.
  Epilogue epilogue_of(const KernelCall& call, const PanelRange& b) const {
    const bool first = b.first_block == 0, last = b.first_block + b.block_count == cut_.depth;
    Epilogue e;
    e.m = p_.m();
    e.n = p_.n();
    e.stride = p_.n();
    if (p_.op == OpKind::linear_weight_grad) {
      e.out_f32 = call.out[0].as<float>();
      e.add = call.accumulate || !first ? e.out_f32 : nullptr;
      return e;
    }
    float* sums = reinterpret_cast<float*>(scratch_of(call, p_.threads));
    if (!first) e.add = sums;
    if (!last) {
      e.out_f32 = sums;
      return e;
    }
    e.out_bf16 = call.out[0].as<uint16_t>();
    e.bias = p_.bias ? call.in[2].as<const uint16_t>() : nullptr;
    e.relu = p_.relu;
    return e;
  }

  Product p_;
  const BlockKernel& kernel_ = block_kernel();
  Cut cut_;
  Scratch scratch_;
};

class PanelPack final : public Kernel {
 public:
  explicit PanelPack(const Product& product) : p_(product) {}

  void run(const KernelCall& call) const override {
    const int64_t depth = depth_blocks_of(p_.k());
    pack_b_together(p_.threads, source_b(p_, call.in[0]), {0, panels_of(p_.n()), 0, depth},
                    call.out[0].as<char>(), depth * kBlockBytes, block_kernel().b_past_caches);
  }

 private:
  Product p_;
};

}  // namespace

int64_t panel_product_workspace_bytes(const Product& product) {
  return Scratch(product, Cut(product)).bytes(product.threads);
}

int64_t panel_product_packed_bytes(const Product& product) {
  if (product.op == OpKind::linear_weight_grad || product.rows > kMaxRowsPacked) return 0;
  return panels_of(product.n()) * depth_blocks_of(product.k()) * kBlockBytes;
}

int64_t panel_product_sum_rows_part(const Product& product) {
  return Cut(product).chunk_depth * kDepthBlock;
}

std::unique_ptr<Kernel> make_panel_product(const Product& product) {
  return std::make_unique<PanelProduct>(product);
}

void run_panel_product(const Product& product, const KernelCall& call) {
  PanelProduct(product).run(call);
}

std::unique_ptr<Kernel> make_panel_pack(const Product& product) {
  return std::make_unique<PanelPack>(product);
}

}  // namespace dstrain
