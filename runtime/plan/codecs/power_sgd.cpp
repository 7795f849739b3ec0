// PowerSGD (Vogels et al. 2019, as PyTorch's hook has it): of a gradient M (N,K) the factors P (N,R) and Q (K,R) travel
// instead of N K values. With Q of the step before, orthonormal, P is the sum over ranks of M Q, made orthonormal,
// and Q the sum of M^T P; the sum of the gradients is taken to be P Q^T. What a rank's M has beyond its share of that
// is added to its gradient of the next step. Vectors and small matrices travel whole. Everything happens once a step,
// after the last micro-batch: the messages of all layers together are three, and their bytes are few.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/philox.h"
#include "runtime/plan/codecs/codecs.h"

namespace dstrain {
namespace {

constexpr const char* kWholeGradients = "whole_grads";  // the buffer of what travels whole

// A gradient that travels as factors.
struct Matrix {
  std::string name;
  BufferId gradient = kNone;  // (N,K)
  int64_t rows = 0, columns = 0, rank = 0;
  BufferId p = kNone, q = kNone;  // (R,N), (R,K): columns of a factor lie one behind the other
  BufferId error = kNone, next_error = kNone;

  int64_t elements() const { return rows * columns; }
};

// Elements of a unit's gradients that travel whole.
struct Run {
  BufferId gradients = kNone;
  Range range;
};

class PowerSgd {
 public:
  PowerSgd(Program& program, const Job& job, Place place)
      : program_(program), hook_(job.hook), wire_(job.wire_dtype), place_(place) {
    group_ = program.add_group("powerSGD");
  }

  void run() {
    for (const Unit& unit : program_.trained_units())
      hook_.kind == HookKind::batched_power_sgd ? take_whole(unit) : take_parameters(unit);
    make_state();
    const BufferId whole = pack_whole();
    if (matrices_.empty()) return unpack_whole(whole);
    const BufferId p = program_.root(matrices_.front().p), q = program_.root(matrices_.front().q);
    for (const Copy& copy : padded_) emit(OpKind::accumulate, {copy.from}, {copy.to});
    if (hook_.warm_start) emit(OpKind::accumulate, {factor_}, {q});
    for (const Matrix& m : matrices_) {
      if (!hook_.warm_start)
        emit(OpKind::random_factor, {}, {m.q}).attrs = RandomFactorAttrs{
            .seed = static_cast<uint64_t>(hook_.seed), .stream = hash_name(m.name + ":factor")};
      emit(OpKind::gram_schmidt, {m.q}, {m.q}).attrs =
          GramSchmidtAttrs{.eps = hook_.orthogonal_eps, .revive = true};
      if (m.error != kNone) emit(OpKind::add_error, {m.error}, {m.gradient});
      emit(OpKind::project_rows, {m.gradient, m.q}, {m.p});
    }
    sum(p, "factor_p");
    for (const Matrix& m : matrices_) {
      emit(OpKind::gram_schmidt, {m.p}, {m.p}).attrs =
          GramSchmidtAttrs{.eps = hook_.orthogonal_eps};
      emit(OpKind::project_columns, {m.gradient, m.p}, {m.q});
    }
    measure();
    sum(q, "factor_q");
    for (const Matrix& m : matrices_) {
      std::vector<BufferId> writes{m.gradient};
      if (m.error != kNone) writes.push_back(m.next_error);
      emit(OpKind::expand_factors, {m.p, m.q, m.gradient}, std::move(writes)).attrs =
          ExpandAttrs{.ranks = place_.ranks()};
    }
    for (const Copy& copy : restored_) emit(OpKind::accumulate, {copy.from}, {copy.to});
    unpack_whole(whole);
    if (hook_.warm_start) program_.commits.push_back({q, factor_, false});
    if (error_ != kNone) program_.commits.push_back({next_error_, error_, true});
  }

 private:
  struct Copy {
    BufferId from, to;
  };

  Instruction& emit(OpKind op, std::vector<BufferId> reads, std::vector<BufferId> writes) {
    return program_.add_at_end(op, std::move(reads), std::move(writes), group_);
  }

  BufferId flat(const std::string& name, int64_t elements, DType dtype = DType::f32) {
    return program_.add_buffer({.name = name,
                                .shape = {elements},
                                .dtype = dtype,
                                .memory = MemoryClass::communication,
                                .lifetime = Lifetime::step});
  }
  BufferId persistent(const std::string& name, int64_t elements) {
    return program_.add_buffer({.name = name,
                                .shape = {elements},
                                .memory = MemoryClass::communication,
                                .lifetime = Lifetime::persistent});
  }
  BufferId part(BufferId whole, int64_t at, Shape shape) {
    const Buffer& parent = program_.at(whole);
    return program_.add_buffer({.name = fmt::format("{}[{}]", parent.name, at),
                                .shape = shape,
                                .dtype = parent.dtype,
                                .memory = parent.memory,
                                .lifetime = parent.lifetime,
                                .parent = whole,
                                .parent_offset = at});
  }

  // The matrices of a unit that are worth it; neighbours of the others travel together.
  void take_parameters(const Unit& unit) {
    const BufferId gradients = unit.buffers.gradients.id;
    bool joins = false;
    for (const int index : unit.parameters) {
      const Parameter p = program_.parameter(index);
      if (p.gradient == kNone) continue;
      const Range range = elements_of(p);
      Matrix m{.name = p.name, .rows = p.shape.rank > 1 ? p.shape[0] : 1};
      m.columns = range.size() / m.rows;
      m.rank = std::min({hook_.rank, m.rows, m.columns});
      const bool smaller =
          static_cast<double>((m.rows + m.columns) * m.rank) * hook_.min_compression <
          static_cast<double>(m.elements());
      if (smaller) {
        m.gradient = part(gradients, range.begin, {m.rows, m.columns});
        matrices_.push_back(std::move(m));
      } else if (joins) {
        whole_.back().range.end = range.end;
      } else {
        whole_.push_back({gradients, range});
      }
      joins = !smaller;
    }
  }

  // All gradients of a unit as one square matrix, whose end is 0.
  void take_whole(const Unit& unit) {
    const BufferId gradients = unit.buffers.gradients.id;
    const int64_t n = elements_of(program_.parameter(unit.parameters.back())).end;
    int64_t side = 1;
    while (side * side < n) ++side;
    Matrix m{.name = unit.name, .rows = side, .columns = side, .rank = std::min(hook_.rank, side)};
    const BufferId square = flat("square:" + unit.name, side * side);
    padded_.push_back({program_.view(gradients, 0, n), program_.view(square, 0, n)});
    if (n < side * side) emit(OpKind::zero, {}, {program_.view(square, n, side * side - n)});
    for (const int index : unit.parameters) {
      const Parameter p = program_.parameter(index);
      const Range range = elements_of(p);
      restored_.push_back({program_.view(square, range.begin, range.size()),
                           program_.view(gradients, range.begin, range.size())});
    }
    m.gradient = part(square, 0, {side, side});
    matrices_.push_back(std::move(m));
  }

  // Gives every matrix its factors, and what is kept of it from step to step.
  void make_state() {
    if (matrices_.empty()) return;
    int64_t rows = 0, columns = 0, elements = 0;
    for (const Matrix& m : matrices_) {
      rows += m.rank * m.rows;
      columns += m.rank * m.columns;
      elements += m.elements();
    }
    const BufferId p = flat("factor_p", rows), q = flat("factor_q", columns);
    if (hook_.warm_start) factor_ = persistent("hook_factor", columns);
    if (hook_.error_feedback) {
      error_ = persistent("hook_error", elements);
      next_error_ = flat("hook_next_error", elements);
    }
    rows = columns = elements = 0;
    for (Matrix& m : matrices_) {
      m.p = part(p, rows, {m.rank, m.rows});
      m.q = part(q, columns, {m.rank, m.columns});
      if (hook_.warm_start)
        program_.codec_state.push_back({.name = m.name,
                                        .slot = "factor",
                                        .values = part(factor_, columns, {m.rank, m.columns}),
                                        .init = Init::normal,
                                        .seed = static_cast<uint64_t>(hook_.seed)});
      if (hook_.error_feedback) {
        m.error = part(error_, elements, {m.rows, m.columns});
        m.next_error = part(next_error_, elements, {m.rows, m.columns});
        program_.codec_state.push_back({.name = m.name,
                                        .slot = "error",
                                        .values = m.error,
                                        .per_rank = true,
                                        .residual = true});
      }
      rows += m.rank * m.rows;
      columns += m.rank * m.columns;
      elements += m.elements();
    }
  }

  // Measures what of a rank's matrices is along its columns of P: as these are orthonormal, the square of its length is
  // that of M^T P. The rest does not travel; a part of it would cancel among ranks.
  void measure() {
    const auto count = static_cast<int64_t>(matrices_.size());
    const BufferId sums = program_.add_buffer({.name = codec_error_name(kFactorClass),
                                               .shape = {count, 2},
                                               .dtype = DType::f64,
                                               .memory = MemoryClass::workspace,
                                               .lifetime = Lifetime::persistent,
                                               .role = BufferRole::codec_errors});
    for (int64_t i = 0; i < count; ++i) {
      const Matrix m = matrices_[static_cast<size_t>(i)];
      emit(OpKind::sum_squares, {m.q}, {program_.view(sums, 2 * i, 1)});
      emit(OpKind::sum_squares, {m.gradient}, {program_.view(sums, 2 * i + 1, 1)});
    }
  }

  // Adds a buffer over ranks, as the wire's dtype.
  void sum(BufferId values, const std::string& name) {
    BufferId sent = values;
    if (wire_ != DType::f32) {
      sent = flat("wire:" + name, program_.at(values).shape.elements(), wire_);
      program_.at(sent).role = BufferRole::gradients;
      emit(OpKind::cast, {values}, {sent});
    }
    emit(OpKind::all_reduce, {sent}, {sent});
    if (sent != values) emit(OpKind::accumulate, {sent}, {values});
  }

  // Sends what travels whole, in one message beside the work on the factors. Returns its buffer.
  BufferId pack_whole() {
    int64_t elements = 0;
    for (const Run& run : whole_) elements += run.range.size();
    if (elements == 0) return kNone;
    const BufferId whole = flat(kWholeGradients, elements, wire_);
    for_runs(whole, [&](BufferId gradients, BufferId sent) {
      emit(wire_ == DType::f32 ? OpKind::accumulate : OpKind::cast, {gradients}, {sent});
    });
    emit(OpKind::all_reduce, {whole}, {whole});
    return whole;
  }
  void unpack_whole(BufferId whole) {
    for_runs(whole, [&](BufferId gradients, BufferId sent) {
      emit(OpKind::accumulate, {sent}, {gradients});
    });
  }
  template <class Take>
  void for_runs(BufferId whole, const Take& take) {
    int64_t at = 0;
    for (const Run& run : whole_) {
      const int64_t n = run.range.size();
      const BufferId sent = program_.view(whole, std::exchange(at, at + n), n);
      take(program_.view(run.gradients, run.range.begin, n), sent);
    }
  }

  Program& program_;
  const HookConfig& hook_;
  const DType wire_;
  const Place place_;
  int32_t group_ = 0;
  std::vector<Matrix> matrices_;
  std::vector<Run> whole_;
  std::vector<Copy> padded_, restored_;  // to and from square matrices
  BufferId factor_ = kNone, error_ = kNone, next_error_ = kNone;
};

}  // namespace

void power_sgd(Program& program, const Job& job, const Place& place) {
  PowerSgd(program, job, place).run();
}

int64_t values_sent_whole(const Program& program) {
  const BufferId whole = program.find(kWholeGradients);
  return whole == kNone ? 0 : program.at(whole).shape.elements();
}

}  // namespace dstrain
