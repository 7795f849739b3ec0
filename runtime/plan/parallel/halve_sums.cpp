#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/ir/rule.h"
#include "runtime/plan/parallel/consumers.h"
#include "runtime/plan/parallel/parallel.h"

namespace dstrain {
namespace {

constexpr int64_t kHalves = 2, kLineBytes = 64;

class HalvePass {
 public:
  HalvePass(Program& program, const Place& place)
      : program_(program), channel_(channel_of(place, Axis::tensor)) {}

  void run() {
    const std::vector<Instruction> old = std::move(program_.instructions);
    program_.instructions.clear();
    for (size_t i = 0; i < old.size(); ++i) {
      if (i + 1 < old.size() && can_halve(old[i], old[i + 1])) {
        halve(old[i], old[i + 1]);
        ++i;
      } else {
        program_.instructions.push_back(old[i]);
      }
    }
  }

 private:
  bool can_halve(const Instruction& product, const Instruction& sum) const {
    const OpAxes axes = axes_of(program_, product);
    const bool by_rows =  // of the weight, which are columns of the result
        is_product(axes) && axes.read(1).axes[0] == axes.write(0).last();
    if (!by_rows || rule_of(sum.op).collective != Collective::reduce_scatter ||
        sum.channel != channel_ || sum.reads[0] != product.writes[0] ||
        is_adapter_product(program_, product, AdapterMatrix::a) ||
        std::ranges::any_of(product.reads.begin() + 2, product.reads.end(),
                            [](BufferId id) { return id != kNone; }))
      return false;
    const Buffer &weight = program_.at(product.reads[1]), &result = program_.at(sum.writes[0]);
    return weight.shape[0] % kHalves == 0 && weight.bytes() % (kHalves * kLineBytes) == 0 &&
           result.bytes() % (kHalves * kLineBytes) == 0;
  }

  void halve(const Instruction& product, const Instruction& sum) {
    const BufferId weight = product.reads[1], whole = sum.writes[0];
    const Shape of_weight = program_.at(weight).shape,
                of_part = program_.at(product.writes[0]).shape, of_sum = program_.at(whole).shape;
    const int64_t rows = of_weight[0] / kHalves;
    const BufferId sums = add("halves", whole, {kHalves, of_sum[0], rows});
    for (int64_t half = 0; half < kHalves; ++half) {
      Instruction mine = product, its_sum = sum;
      const int64_t elements = rows * of_weight[1];
      mine.reads[1] = program_.view(weight, half * elements, elements);
      program_.at(mine.reads[1]).shape = {rows, of_weight[1]};
      mine.writes[0] = add(fmt::format("half{}", half), product.writes[0], {of_part[0], rows});
      its_sum.reads[0] = mine.writes[0];
      its_sum.writes[0] = program_.view(sums, half * of_sum[0] * rows, of_sum[0] * rows);
      program_.at(its_sum.writes[0]).shape = {of_sum[0], rows};
      program_.instructions.push_back(std::move(mine));
      program_.instructions.push_back(std::move(its_sum));
    }
    Instruction join = product;
    join.op = OpKind::join_columns;
    join.attrs = ColumnsAttrs{.parts = kHalves};
    join.reads = {sums};
    join.writes = {whole};
    program_.instructions.push_back(std::move(join));
  }

  BufferId add(std::string_view what, BufferId of, const Shape& shape) {
    return program_.add_buffer({.name = fmt::format("{}:{}", what, program_.at(of).name),
                                .shape = shape,
                                .dtype = program_.at(of).dtype});
  }

  Program& program_;
  const int32_t channel_;
};

}  // namespace

void halve_sums(Program& program, const Job& job, const Place& place) {
  if (job.overlap_tensor && place.ranks_in(Axis::tensor) > 1) HalvePass(program, place).run();
}

}  // namespace dstrain
