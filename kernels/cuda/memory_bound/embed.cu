// embed and embed_position_grad. Minimum memory traffic in bytes, s bytes per element: embed 2 s R C, as a row of the
// tables is read from memory at most once; embed_position_grad s R C + 4 T C.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kRowsOfBlock = 8;  // one warp per row

// The rows of an operand, and the tokens that the table has.
struct EmbedShape {
  int64_t rows, seq_len, c;
  int64_t first_row, first_token, tokens;
};

// x = token[ids] + position; position may be null, and documents. Rows of tokens that the table does not have are zeros.
// SASS <?*16, true>: threads 256, blocks 4, loads 8
template <class T, bool kAligned>
__global__ void __launch_bounds__(32 * kRowsOfBlock, 4)
    embed_kernel(const int32_t* ids, const T* token, const T* position, const int32_t* documents,
                 T* x, EmbedShape shape) {
  constexpr int kN = pack_of(sizeof(T));
  constexpr int kAhead = kAligned ? 4 : 1;  // packs that a lane loads at a time
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.y;
  if (r >= shape.rows) return;
  const int64_t c = shape.c, id = ids[r] - shape.first_token;
  const bool has = id >= 0 && id < shape.tokens;
  const T* from = token + (has ? id : 0) * c;
  const int64_t of_token = has ? c : 0;
  const int64_t place = (shape.first_row + r) % shape.seq_len - (documents ? documents[r] : 0);
  const T* beside = position ? position + place * c : nullptr;
  T* to = x + r * c;
  const int64_t begin = kAligned ? 0 : pack_start<kN>(to);
  for (int64_t first = begin + kN * static_cast<int64_t>(threadIdx.x); first < c;
       first += kAhead * kN * 32) {
    PackOf<kAligned, T, kN> words[kAhead], places[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) words[j].load(from, first + j * kN * 32, of_token);
    if (beside) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j) places[j].load(beside, first + j * kN * 32, c);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      float v[kN];
      words[j].widen_to(v);
      if (beside) {
        float p[kN];
        places[j].widen_to(p);
#pragma unroll
        for (int k = 0; k < kN; ++k) v[k] += p[k];
      }
      store_pack<kAligned>(v, to, first + j * kN * 32, c);
    }
  }
}

// total += the packs at elements `at`, at + stride, ... of the n elements of d_x, in order.
template <bool kAligned, int kSamples, int kN, class T>
__device__ __forceinline__ void add_samples(float (&total)[kN], const T* d_x, int64_t at,
                                            int64_t stride, int64_t n) {
  PackOf<kAligned, T, kN> packs[kSamples];
#pragma unroll
  for (int j = 0; j < kSamples; ++j) packs[j].load(d_x, at + j * stride, n);
#pragma unroll
  for (int j = 0; j < kSamples; ++j) {
    float v[kN];
    packs[j].widen_to(v);
#pragma unroll
    for (int k = 0; k < kN; ++k) total[k] += v[k];
  }
}

// The elements of samples that d_x has: `count` of them, from element `lead` of the first sample on.
struct SampleElements {
  int64_t lead, count;
};

// d_position[0, n) (+)= the sum over the samples, of n elements each, in order. Packs start at `first` <= 0.
// SASS <?*16, true>: threads 256, blocks 3, loads 8
template <class T, bool kAligned>
__global__ void __launch_bounds__(kFlatThreads, 3)
    position_grad_kernel(const T* d_x, float* d_position, SampleElements has, int64_t first,
                         int64_t n, bool add) {
  constexpr int kN = kAligned ? pack_of(sizeof(T)) : 4;
  constexpr int kAhead = kAligned ? 8 : 2;  // samples that a thread loads at a time
  const int64_t at = first + kN * (static_cast<int64_t>(blockIdx.x) * kFlatThreads + threadIdx.x);
  if (at >= n) return;
  float total[kN] = {};
  // Packs that d_x has in part, which unaligned ones may be, have zeros elsewhere.
  int64_t from = at - has.lead;
  if (from + kN <= 0) from += n;
#pragma unroll 1
  for (; from + (kAhead - 1) * n < has.count; from += kAhead * n)
    add_samples<kAligned, kAhead>(total, d_x, from, n, has.count);
#pragma unroll 1
  for (; from < has.count; from += n) add_samples<kAligned, 1>(total, d_x, from, n, has.count);
  if (add) {
    float before[kN];
    load(d_position, at, n, before);
#pragma unroll
    for (int k = 0; k < kN; ++k) total[k] = before[k] + total[k];
  }
  store_pack<kAligned>(total, d_position, at, n);
}

// Launches the kernel for `n` elements of d_position.
template <class T>
void add_positions(const LaunchContext& context, const T* d_x, float* d_position,
                   const SampleElements& has, int64_t n, bool add) {
  constexpr int kN = pack_of(sizeof(T));
  const bool whole =
      whole_packs<kN>(n, d_x, d_position) && has.lead % kN == 0 && has.count % kN == 0;
  with_flag(whole, [&](auto aligned) {
    constexpr bool kAligned = decltype(aligned)::value;
    constexpr int kOfThread = kAligned ? kN : 4;
    const int64_t first = kAligned ? 0 : pack_start<kOfThread>(d_position);
    const int64_t packs = (n - first + kOfThread - 1) / kOfThread;
    const Grid grid{static_cast<unsigned>((packs + kFlatThreads - 1) / kFlatThreads), kFlatThreads};
    launch(context.stream, "embed_position_grad", grid, position_grad_kernel<T, kAligned>, d_x,
           d_position, has, first, n, add);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_embed(const KernelSpec& spec, const LaunchContext& context) {
  const auto attrs = attrs_as<EmbedAttrs>(spec.attrs);
  const EmbedShape shape{.rows = elements(spec.in[0]),
                         .seq_len = attrs.seq_len,
                         .c = columns(spec.in[1]),
                         .first_row = attrs.part.first,
                         .first_token = attrs.first_token,
                         .tokens = attrs.tokens > 0 ? attrs.tokens : rows(spec.in[1])};
  return kernel_of([context, shape, dtype = spec.out[0].dtype](const KernelCall& call) {
    if (shape.rows == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      const T *token = data<const T>(call.in, 1), *position = data<const T>(call.in, 2);
      T* x = data<T>(call.out, 0);
      with_flag(whole_packs<pack_of(sizeof(T))>(shape.c, token, position, x), [&](auto aligned) {
        launch(context.stream, "embed",
               Grid{static_cast<unsigned>((shape.rows + kRowsOfBlock - 1) / kRowsOfBlock),
                    dim3(32, kRowsOfBlock)},
               embed_kernel<T, decltype(aligned)::value>, data<const int32_t>(call.in, 0), token,
               position, data<const int32_t>(call.in, 3), x, shape);
      });
    });
  });
}

std::unique_ptr<Kernel> make_embed_position_grad(const KernelSpec& spec,
                                                 const LaunchContext& context) {
  if (present(spec.in, 1)) return make_document_position_grad(spec, context);
  const auto attrs = attrs_as<EmbedAttrs>(spec.attrs);
  const int64_t c = columns(spec.out[0]), used = attrs.seq_len * c;
  const SampleElements has{.lead = attrs.part.first % attrs.seq_len * c,
                           .count = elements(spec.in[0])};
  return kernel_of([context, used, has, all = elements(spec.out[0]),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    if (used == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      const T* d_x = data<const T>(call.in, 0);
      add_positions(context, d_x, data<float>(call.out, 0), has, used, call.accumulate);
      // The sum over no sample for the positions that no sample has.
      if (all > used && !call.accumulate)
        add_positions(context, d_x, data<float>(call.out, 0) + used, {}, all - used, false);
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
