// embed_token_grad, and embed_position_grad with documents, without float atomics: a stable radix sort orders the rows by
// id (or position), so that one warp adds all rows of an id in their order and gives the bits of
// kernels/cpu/memory_bound/embed.cpp. A block adds those of an id with many rows: its warps divide the loads of rows, and then the
// columns of the sum, so the order stays.
// Minimum memory traffic in bytes: s R C + 8 R C (reads, adds and writes a row), and 4 V C to clear the table; the
// sort moves about 20 R.
#include <bit>

#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kDigits = 256, kDigitBits = 8;
constexpr int kChunk = 1024;  // rows that a block sorts at a time
constexpr int kScanThreads = 1024;
constexpr int kRowsOfBlock = 8;
constexpr int kFrequent = 64;  // an id has many rows from so many on
constexpr int kTogether = 32;  // rows of such an id that a block loads at a time

int64_t chunk_count(int64_t rows) {
  return (rows + kChunk - 1) / kChunk;
}

// Returns row i of the order so far: order[i], or i before the first pass.
__device__ __forceinline__ int32_t row_at(const int32_t* order, int64_t i) {
  return order ? order[i] : static_cast<int32_t>(i);
}

// counts[digit][chunk] = the number of rows of the chunk with that digit.
__global__ void __launch_bounds__(kDigits) count_digits(const int32_t* ids, const int32_t* order,
                                                        int64_t rows, int shift, int32_t* counts) {
  __shared__ int histogram[kDigits];
  histogram[threadIdx.x] = 0;
  __syncthreads();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kChunk;
  for (int64_t i = first + threadIdx.x; i < min(rows, first + kChunk); i += kDigits)
    atomicAdd(&histogram[ids[row_at(order, i)] >> shift & (kDigits - 1)], 1);
  __syncthreads();
  counts[threadIdx.x * gridDim.x + blockIdx.x] = histogram[threadIdx.x];
}

// Exclusive prefix sum: counts[i] = the sum of the counts before i. Launched as one block.
__global__ void __launch_bounds__(kScanThreads) scan_counts(int32_t* counts, int64_t n) {
  __shared__ int32_t warp_sums[kScanThreads / 32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t before = 0;
  for (int64_t first = 0; first < n; first += kScanThreads) {
    const int64_t i = first + threadIdx.x;
    const int32_t count = i < n ? counts[i] : 0;
    int32_t sum = count;
    for (unsigned d = 1; d < 32; d *= 2) {
      const int32_t other = __shfl_up_sync(~0u, sum, d);
      if (lane >= d) sum += other;
    }
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    int32_t earlier_warps = 0, all = 0;
    for (unsigned w = 0; w < kScanThreads / 32; ++w) {
      if (w < warp) earlier_warps += warp_sums[w];
      all += warp_sums[w];
    }
    if (i < n) counts[i] = before + earlier_warps + sum - count;
    before += all;
    __syncthreads();
  }
}

// Moves the chunk's rows to the positions of their digits, in order; thread d moves those of digit d.
__global__ void __launch_bounds__(kDigits)
    place_rows(const int32_t* ids, const int32_t* order, int64_t rows, int shift,
               const int32_t* starts, int32_t* to) {
  __shared__ int32_t row[kChunk];
  __shared__ uint8_t digit[kChunk];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kChunk;
  const int here = static_cast<int>(min(rows - first, int64_t{kChunk}));
  for (int i = static_cast<int>(threadIdx.x); i < here; i += kDigits) {
    row[i] = row_at(order, first + i);
    digit[i] = static_cast<uint8_t>(ids[row[i]] >> shift & (kDigits - 1));
  }
  __syncthreads();
  int32_t at = starts[threadIdx.x * gridDim.x + blockIdx.x];
  for (int i = 0; i < here; ++i)
    if (digit[i] == threadIdx.x) to[at++] = row[i];
}

struct Clear {
  float* y;
  __device__ void operator()(int64_t at, int64_t n) const {
    const float zeros[4] = {};
    store(zeros, y, at, n);
  }
};

template <class T, bool kAligned>
constexpr int columns_of_lane = kAligned ? pack_of(sizeof(T)) : 4;

// Returns the id of row i of the order, or -1 if there is no such row.
__device__ __forceinline__ int32_t id_at(const int32_t* ids, const int32_t* order, int64_t rows,
                                         int64_t i) {
  return i >= 0 && i < rows ? ids[order[i]] : -1;
}

// One warp for each sorted row and 32 packs of columns. It adds all rows of an id if its row is the first of the id,
// and the id has few; otherwise it does nothing. Ids from `ids_of_table` on have no row of d_token.
// SASS <?*16, true>: threads 256, blocks 4, loads 2
template <class T, bool kAligned>
__global__ void __launch_bounds__(32 * kRowsOfBlock, 2)
    add_rows(const T* d_x, const int32_t* ids, const int32_t* order, int64_t rows, int64_t c,
             float* d_token, int64_t ids_of_table) {
  constexpr int kN = columns_of_lane<T, kAligned>, kAhead = 4;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.y;
  if (begin >= rows) return;
  const int32_t id = ids[order[begin]];
  if (id >= ids_of_table || id_at(ids, order, rows, begin - 1) == id) return;
  if (id_at(ids, order, rows, begin + kFrequent - 1) == id) return;  // add_frequent_rows does it
  float* to = d_token + id * c;
  const int64_t at = (kAligned ? 0 : pack_start<kN>(to)) +
                     kN * (static_cast<int64_t>(blockIdx.y) * 32 + threadIdx.x);
  float total[kN];
  load(to, at, c, total);
  for (int64_t i = begin; i < rows; i += 32) {
    // Each lane looks at one of the next 32 rows.
    const int64_t mine = i + threadIdx.x;
    const int32_t row = mine < rows ? order[mine] : 0;
    const int count = __popc(__ballot_sync(~0u, mine < rows && ids[row] == id));
    for (int k = 0; k < count; k += kAhead) {
      PackOf<kAligned, T, kN> packs[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int32_t r = __shfl_sync(~0u, row, min(k + j, count - 1));
        packs[j].load(d_x + r * c, at, k + j < count ? c : 0);
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (k + j >= count) break;
        float v[kN];
        packs[j].widen_to(v);
#pragma unroll
        for (int e = 0; e < kN; ++e) total[e] += v[e];
      }
    }
    if (count < 32) break;
  }
  store_pack<kAligned>(total, to, at, c);
}

// Returns how many of rows [begin, begin + kCount) of the order are of the id. For whole warps.
template <int kCount>
__device__ __forceinline__ int count_of(const int32_t* ids, const int32_t* order, int64_t rows,
                                        int64_t begin, int32_t id) {
  int count = 0;
#pragma unroll
  for (int k = 0; k < kCount; k += 32)
    count += __popc(__ballot_sync(~0u, id_at(ids, order, rows, begin + k + threadIdx.x) == id));
  return count;
}

// One block for each kFrequent-th sorted row and 32 packs of columns. It adds all rows of an id if it is the first such
// block whose row is of the id, and the id has at least kFrequent rows; otherwise it does nothing.
// SASS <?*16, true>: threads 256, blocks 2, loads 4
template <class T, bool kAligned>
__global__ void __launch_bounds__(32 * kRowsOfBlock, 2)
    add_frequent_rows(const T* d_x, const int32_t* ids, const int32_t* order, int64_t rows,
                      int64_t c, float* d_token, int64_t ids_of_table) {
  constexpr int kN = columns_of_lane<T, kAligned>, kWarps = kRowsOfBlock;
  constexpr int kAhead = kTogether / kWarps;  // rows that a warp loads at a time
  static_assert(kN <=
                kWarps);  // so a thread adds one column at most: element `warp` of pack `lane`
  __shared__ float tile[kTogether][kN][32];
  const int64_t here = static_cast<int64_t>(blockIdx.x) * kFrequent;
  const int32_t id = ids[order[here]];
  if (id >= ids_of_table || id_at(ids, order, rows, here - kFrequent) == id) return;
  int64_t i = here - count_of<kFrequent>(ids, order, rows, here - kFrequent, id);
  if (id_at(ids, order, rows, i + kFrequent - 1) != id) return;
  float* to = d_token + id * c;
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t at =
      (kAligned ? 0 : pack_start<kN>(to)) + kN * (static_cast<int64_t>(blockIdx.y) * 32 + lane);
  const int64_t column = at + warp;
  const bool adds = warp < kN && column >= 0 && column < c;
  float total = adds ? to[column] : 0.0f;
  int count = kTogether;
  for (; count == kTogether; i += kTogether) {
    count = count_of<kTogether>(ids, order, rows, i, id);
    PackOf<kAligned, T, kN> packs[kAhead];
    int32_t row[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      row[j] = j * kWarps + warp < count ? order[i + j * kWarps + warp] : -1;
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      packs[j].load(d_x + max(row[j], 0) * c, at, row[j] >= 0 ? c : 0);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      float v[kN];
      packs[j].widen_to(v);
#pragma unroll
      for (int e = 0; e < kN; ++e) tile[j * kWarps + warp][e][lane] = v[e];
    }
    __syncthreads();
    if (adds) {
#pragma unroll 8
      for (int r = 0; r < count; ++r) total += tile[r][warp][lane];
    }
    __syncthreads();
  }
  if (adds) to[column] = total;
}

// positions[r] = the position of row r in its document.
__global__ void __launch_bounds__(kDigits)
    find_positions(const int32_t* documents, int64_t rows, int64_t first_row, int64_t seq_len,
                   int32_t* positions) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kDigits + threadIdx.x;
  if (r < rows) positions[r] = static_cast<int32_t>((first_row + r) % seq_len) - documents[r];
}

// of_table[r] = the row of the table that row r's token has, or `other` if it has none.
__global__ void __launch_bounds__(kDigits)
    find_tokens(const int32_t* ids, int64_t rows, int64_t first_token, int64_t tokens,
                int32_t other, int32_t* of_table) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kDigits + threadIdx.x;
  if (r >= rows) return;
  const int64_t id = ids[r] - first_token;
  of_table[r] = id >= 0 && id < tokens ? static_cast<int32_t>(id) : other;
}

Grid grid_of_rows(int64_t rows) {
  return {static_cast<unsigned>((rows + kDigits - 1) / kDigits), kDigits};
}

struct Workspace {
  int32_t *order[2], *counts;
  Workspace(int32_t* words, int64_t rows) {
    order[0] = words;
    order[1] = words + rows;
    counts = words + 2 * rows;
  }
};

// Adds rows to a table by id.
class AddsRows {
 public:
  AddsRows(const KernelSpec& spec, const LaunchContext& context)
      : context_(context),
        dtype_(spec.in[0].dtype),
        r_(elements(spec.in[1])),
        c_(columns(spec.out[0])),
        v_(rows(spec.out[0])),
        largest_id_(attrs_as<EmbedAttrs>(spec.attrs).tokens > 0 ? v_ : v_ - 1) {}

  int64_t rows_of_input() const { return r_; }
  // Words of scratch memory.
  int64_t words() const { return 2 * r_ + kDigits * chunk_count(r_); }

  // The id of rows that are not added, where the table has a part of the tokens.
  int32_t other_id() const { return static_cast<int32_t>(v_); }

  // Sets the table to zeros unless `accumulate`, and adds row i of d_x to its row ids[i], for all i in order. `words`:
  // scratch memory.
  void run(const void* d_x, const int32_t* ids, float* table, bool accumulate,
           int32_t* words) const {
    if (!accumulate)
      launch_flat<4>(context_, "embed_token_grad (clear)", table, v_ * c_, Clear{table});
    if (r_ == 0) return;
    const int32_t* const order = sort(ids, Workspace(words, r_));
    with_type(dtype_, [&](auto t) {
      using T = decltype(t);
      add(static_cast<const T*>(d_x), ids, order, table);
    });
  }

 private:
  // Returns the rows in the order of their ids.
  const int32_t* sort(const int32_t* ids, const Workspace& w) const {
    const auto largest = static_cast<uint64_t>(largest_id_);
    const int bits = std::max(1, static_cast<int>(std::bit_width(largest)));
    const auto chunks = static_cast<unsigned>(chunk_count(r_));
    const int32_t* order = nullptr;
    for (int shift = 0, pass = 0; shift < bits; shift += kDigitBits, ++pass) {
      int32_t* next = w.order[pass % 2];
      launch(context_.stream, "embed_token_grad (count)", Grid{chunks, kDigits}, count_digits, ids,
             order, r_, shift, w.counts);
      launch(context_.stream, "embed_token_grad (scan)", Grid{1, kScanThreads}, scan_counts,
             w.counts, int64_t{kDigits} * chunks);
      launch(context_.stream, "embed_token_grad (place)", Grid{chunks, kDigits}, place_rows, ids,
             order, r_, shift, w.counts, next);
      order = next;
    }
    return order;
  }

  template <class T>
  void add(const T* d_x, const int32_t* ids, const int32_t* order, float* table) const {
    constexpr int kWhole = columns_of_lane<T, true>;
    const bool whole = whole_packs<kWhole>(c_, d_x) && whole_packs<kWhole>(c_, table);
    with_flag(whole, [&](auto aligned) {
      constexpr bool kAligned = decltype(aligned)::value;
      constexpr int64_t kN = columns_of_lane<T, kAligned>, kColumnsOfWarp = 32 * kN;
      // Unaligned packs begin up to kN - 1 columns before the row.
      const int64_t wide = kAligned ? c_ : c_ + kN - 1;
      const Grid grid{dim3(static_cast<unsigned>((r_ + kRowsOfBlock - 1) / kRowsOfBlock),
                           static_cast<unsigned>((wide + kColumnsOfWarp - 1) / kColumnsOfWarp)),
                      dim3(32, kRowsOfBlock)};
      launch(context_.stream, "embed_token_grad (add)", grid, add_rows<T, kAligned>, d_x, ids,
             order, r_, c_, table, v_);
      Grid frequent = grid;
      frequent.blocks.x = static_cast<unsigned>((r_ + kFrequent - 1) / kFrequent);
      launch(context_.stream, "embed_token_grad (add frequent)", frequent,
             add_frequent_rows<T, kAligned>, d_x, ids, order, r_, c_, table, v_);
    });
  }

  LaunchContext context_;
  DType dtype_;
  int64_t r_, c_, v_, largest_id_;
};

}  // namespace

int64_t embed_token_grad_workspace(const KernelSpec& spec) {
  const AddsRows rows(spec, {});
  const bool some = attrs_as<EmbedAttrs>(spec.attrs).tokens > 0;
  return ((some ? rows.rows_of_input() : 0) + rows.words()) * size_of(DType::i32);
}

std::unique_ptr<Kernel> make_embed_token_grad(const KernelSpec& spec,
                                              const LaunchContext& context) {
  const auto attrs = attrs_as<EmbedAttrs>(spec.attrs);
  return kernel_of([context, rows = AddsRows(spec, context), first = attrs.first_token,
                    tokens = attrs.tokens](const KernelCall& call) {
    const auto* ids = data<const int32_t>(call.in, 1);
    const int64_t r = tokens > 0 ? rows.rows_of_input() : 0;
    auto* const of_table = workspace<int32_t>(call, r + rows.words());
    if (r > 0) {
      launch(context.stream, "embed_token_grad (tokens)", grid_of_rows(r), find_tokens, ids, r,
             first, tokens, rows.other_id(), of_table);
      ids = of_table;
    }
    rows.run(data<const void>(call.in, 0), ids, data<float>(call.out, 0), call.accumulate,
             of_table + r);
  });
}

int64_t embed_position_grad_workspace(const KernelSpec& spec) {
  if (!present(spec.in, 1)) return 0;
  const AddsRows rows(spec, {});
  return (rows.rows_of_input() + rows.words()) * size_of(DType::i32);
}

std::unique_ptr<Kernel> make_document_position_grad(const KernelSpec& spec,
                                                    const LaunchContext& context) {
  return kernel_of([context, rows = AddsRows(spec, context),
                    attrs = attrs_as<EmbedAttrs>(spec.attrs)](const KernelCall& call) {
    const int64_t r = rows.rows_of_input();
    auto* const positions = workspace<int32_t>(call, r + rows.words());
    if (r > 0)
      launch(context.stream, "embed_position_grad (positions)", grid_of_rows(r), find_positions,
             data<const int32_t>(call.in, 1), r, attrs.part.first, attrs.seq_len, positions);
    rows.run(data<const void>(call.in, 0), positions, data<float>(call.out, 0), call.accumulate,
             positions + r);
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
