// rotary and rotary_grad. A thread block has one position: it computes the position's angles in f64, once, and rotates
// that row of all samples, or of a part of their heads. With documents it has one row of one sample.
// Minimum memory traffic: 2 s R C bytes.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kRotaryThreads = 128;

// With documents `samples` is 1, and `seq_len` are the rows of all samples.
struct Rotation {
  int64_t samples, seq_len, heads;
  int64_t length;  // rows of a sample
  int half;        // pairs of a head
  bool back;
  RotaryTurns turns;
};

// y may be x.
// SASS: threads 128, blocks 8
template <class T>
__global__ void __launch_bounds__(kRotaryThreads)
    rotary_kernel(const T* x, const int32_t* documents, T* y, Rotation rotation) {
  constexpr int kN = pack_of(sizeof(T));
  __shared__ float cosines[kMostRotaryPairs], sines[kMostRotaryPairs];
  const int half = rotation.half;
  const int64_t row = blockIdx.x;
  const int64_t position = documents ? row % rotation.length - documents[row] : row;
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kRotaryThreads) {
    const double turns = static_cast<double>(position) * rotation.turns.of_pair[i];
    const double scale = rotation.turns.scale;
    double sine = 0, cosine = 0;
    sincospi(2 * (turns - rint(turns)), &sine, &cosine);
    cosines[i] = static_cast<float>(cosine * scale);
    sines[i] = static_cast<float>(sine * (rotation.back ? -scale : scale));
  }
  __syncthreads();
  const auto packs = static_cast<unsigned>((half + kN - 1) / kN),
             heads = static_cast<unsigned>(rotation.heads);
  const unsigned all = static_cast<unsigned>(rotation.samples) * heads * packs;
  for (unsigned k = blockIdx.y * kRotaryThreads + threadIdx.x; k < all;
       k += gridDim.y * kRotaryThreads) {
    const unsigned of_heads = k / packs, sample = of_heads / heads, head = of_heads % heads;
    const int at = static_cast<int>(k % packs) * kN;
    const int64_t first = ((sample * rotation.seq_len + row) * rotation.heads + head) * 2 * half;
    float a[kN], b[kN];
    load(x + first, at, half, a);
    load(x + first + half, at, half, b);
#pragma unroll
    for (int e = 0; e < kN; ++e) {
      const float cosine = at + e < half ? cosines[at + e] : 0.0f,
                  sine = at + e < half ? sines[at + e] : 0.0f;
      const float low = fmaf(-b[e], sine, a[e] * cosine);
      b[e] = fmaf(a[e], sine, b[e] * cosine);
      a[e] = low;
    }
    store(a, y + first, at, half);
    store(b, y + first + half, at, half);
  }
}

}  // namespace

std::unique_ptr<Kernel> make_rotary(const KernelSpec& spec, const LaunchContext& context) {
  const auto attrs = attrs_as<RotaryAttrs>(spec.attrs);
  const DType dtype = spec.in[0].dtype;
  const bool documents = present(spec.in, 1);
  const int64_t blocks = documents ? rows(spec.in[0]) : attrs.seq_len;
  const Rotation rotation{.samples = rows(spec.in[0]) / std::max<int64_t>(blocks, 1),
                          .seq_len = blocks,
                          .heads = columns(spec.in[0]) / attrs.head_size,
                          .length = attrs.seq_len,
                          .half = static_cast<int>(attrs.head_size / 2),
                          .back = spec.op == OpKind::rotary_grad,
                          .turns = rotary_turns(attrs)};
  // Enough blocks that a thread has about four pairs of packs.
  const int64_t of_position = rotation.samples * columns(spec.in[0]) * size_of(dtype) / 32;
  const auto parts =
      static_cast<unsigned>(std::clamp<int64_t>(of_position / (4 * kRotaryThreads), 1, 64));
  const Grid grid{dim3(static_cast<unsigned>(blocks), parts), kRotaryThreads};
  return kernel_of([context, grid, rotation, dtype](const KernelCall& call) {
    if (rotation.samples == 0 || rotation.heads == 0) return;
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
