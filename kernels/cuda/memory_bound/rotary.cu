// rotary and rotary_grad. A thread block has one row of a sample: it computes the angles of its position in f64, once, and
// rotates that row of all samples, or of a part of their heads. With documents it has the row of one sample.
// Minimum memory traffic: 2 s R C bytes.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kRotaryThreads = 128;

// Rows of the operand that are `step` apart share their angles: those of the same row of each sample, or with documents
// none (all rows).
struct Rotation {
  int64_t rows, step, heads, rotated_heads;
  int64_t first;   // the row of the micro-batch that row 0 is
  int64_t length;  // rows of a sample
  int size, first_column,
      half;  // columns of a head, the first of its pairs, and how many pairs there are
  bool interleaved, back;
  RotaryTurns turns;
};

// Loads the columns of kN pairs from pair `at` on: the first ones of the pairs to a, the second ones to b. x: a head's first pair.
template <int kN, class T>
__device__ __forceinline__ void load_pairs(const T* x, int at, const Rotation& rotation,
                                           float (&a)[kN], float (&b)[kN]) {
  const int half = rotation.half;
  if (!rotation.interleaved) {
    load(x, at, half, a);
    load(x + half, at, half, b);
    return;
  }
  float low[kN], high[kN];
  load(x, 2 * at, 2 * half, low);
  load(x, 2 * at + kN, 2 * half, high);
#pragma unroll
  for (int e = 0; e < kN; ++e) {
    a[e] = 2 * e < kN ? low[(2 * e) % kN] : high[(2 * e) % kN];
    b[e] = 2 * e < kN ? low[(2 * e + 1) % kN] : high[(2 * e + 1) % kN];
  }
}

// Stores what load_pairs() has loaded.
template <int kN, class T>
__device__ __forceinline__ void store_pairs(const float (&a)[kN], const float (&b)[kN], T* y,
                                            int at, const Rotation& rotation) {
  const int half = rotation.half;
  if (!rotation.interleaved) {
    store(a, y, at, half);
    store(b, y + half, at, half);
    return;
  }
  float low[kN], high[kN];
#pragma unroll
  for (int e = 0; e < kN; ++e) {
    low[e] = e % 2 == 0 ? a[e / 2] : b[e / 2];
    high[e] = e % 2 == 0 ? a[(kN + e) / 2] : b[(kN + e) / 2];
  }
  store(low, y, 2 * at, 2 * half);
  store(high, y, 2 * at + kN, 2 * half);
}

// y may be x.
// SASS: threads 128, blocks 8
template <class T>
__global__ void __launch_bounds__(kRotaryThreads)
    rotary_kernel(const T* x, const int32_t* documents, T* y, Rotation rotation) {
  constexpr int kN = pack_of(sizeof(T));
  __shared__ float cosines[kMostRotaryPairs], sines[kMostRotaryPairs];
  const int half = rotation.half;
  const int64_t row = blockIdx.x;
  const int64_t position =
      (rotation.first + row) % rotation.length - (documents ? documents[row] : 0);
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kRotaryThreads) {
    const double turns = static_cast<double>(position) * rotation.turns.of_pair[i];
    const double scale = rotation.turns.scale;
    double sine = 0, cosine = 0;
    sincospi(2 * (turns - rint(turns)), &sine, &cosine);
    cosines[i] = static_cast<float>(cosine * scale);
    sines[i] = static_cast<float>(sine * (rotation.back ? -scale : scale));
  }
  __syncthreads();
  // Columns before and behind the pairs are copied, unless y is x.
  const int begin = rotation.first_column, end = begin + 2 * half;
  const auto packs_of = [](int columns) { return static_cast<unsigned>((columns + kN - 1) / kN); };
  const unsigned pairs = packs_of(half), before = x == y ? 0 : packs_of(begin),
                 behind = x == y ? 0 : packs_of(rotation.size - end),
                 packs = pairs + before + behind, heads = static_cast<unsigned>(rotation.heads);
  const auto samples = static_cast<unsigned>((rotation.rows - row - 1) / rotation.step + 1);
  const unsigned all = samples * heads * packs;
  for (unsigned k = blockIdx.y * kRotaryThreads + threadIdx.x; k < all;
       k += gridDim.y * kRotaryThreads) {
    const unsigned of_heads = k / packs, sample = of_heads / heads, head = of_heads % heads;
    const unsigned pack = k % packs;
    const int64_t first = ((sample * rotation.step + row) * rotation.heads + head) * rotation.size;
    float a[kN], b[kN];
    if (pack >= pairs) {
      const unsigned rest = pack - pairs;
      const bool is_before = rest < before;
      const int from = is_before ? static_cast<int>(rest) * kN
                                 : end + static_cast<int>(rest - before) * kN,
                limit = is_before ? begin : rotation.size;
      load(x + first, from, limit, a);
      store(a, y + first, from, limit);
      continue;
    }
    const int at = static_cast<int>(pack) * kN;
    load_pairs(x + first + begin, at, rotation, a, b);
    if (head < rotation.rotated_heads) {
#pragma unroll
      for (int e = 0; e < kN; ++e) {
        const float cosine = at + e < half ? cosines[at + e] : 0.0f,
                    sine = at + e < half ? sines[at + e] : 0.0f;
        const float low = fmaf(-b[e], sine, a[e] * cosine);
        b[e] = fmaf(a[e], sine, b[e] * cosine);
        a[e] = low;
      }
    }
    store_pairs(a, b, y + first + begin, at, rotation);
  }
}

}  // namespace

std::unique_ptr<Kernel> make_rotary(const KernelSpec& spec, const LaunchContext& context) {
  const auto attrs = attrs_as<RotaryAttrs>(spec.attrs);
  const DType dtype = spec.in[0].dtype;
  const bool documents = present(spec.in, 1);
  const int64_t r = rows(spec.in[0]), blocks = documents ? r : std::min(r, attrs.seq_len);
  const Rotation rotation{
      .rows = r,
      .step = blocks,
      .heads = columns(spec.in[0]) / attrs.head_size,
      .rotated_heads = attrs.rotated_heads(columns(spec.in[0]) / attrs.head_size),
      .first = attrs.part.first,
      .length = attrs.seq_len,
      .size = static_cast<int>(attrs.head_size),
      .first_column = static_cast<int>(attrs.first_column),
      .half = static_cast<int>(attrs.rotated_columns() / 2),
      .interleaved = attrs.interleaved,
      .back = spec.op == OpKind::rotary_grad,
      .turns = rotary_turns(attrs)};
  // Enough blocks that a thread has about four pairs of packs.
  const int64_t of_position =
      r / std::max<int64_t>(blocks, 1) * columns(spec.in[0]) * size_of(dtype) / 32;
  const auto parts =
      static_cast<unsigned>(std::clamp<int64_t>(of_position / (4 * kRotaryThreads), 1, 64));
  const Grid grid{dim3(static_cast<unsigned>(blocks), parts), kRotaryThreads};
  return kernel_of([context, grid, rotation, dtype](const KernelCall& call) {
    if (rotation.rows == 0 || rotation.heads == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch(context.stream, rotation.back ? "rotary_grad" : "rotary", grid, rotary_kernel<T>,
             data<const T>(call.in, 0), data<const int32_t>(call.in, 1), data<T>(call.out, 0),
             rotation);
    });
  });
}

std::unique_ptr<Kernel> make_rotary_grad(const KernelSpec& spec, const LaunchContext& context) {
  return make_rotary(spec, context);  // which looks at the op
}

}  // namespace dstrain::DSTRAIN_BACKEND
