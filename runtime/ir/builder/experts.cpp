#include "runtime/ir/builder/builder.h"

namespace dstrain {

Builder::Routed Builder::route(BufferId x, BufferId weight, BufferId bias, int64_t slots,
                               const RouteAttrs& attrs) {
  const Shape& all = program_.at(x).shape;
  const int64_t rows = all.elements() / all[-1];
  const Shape scores{rows, program_.at(weight).shape[0]}, chosen{rows, slots};
  const BufferId logits = emit(OpKind::linear, ActivationAttrs{}, {x, weight, kNone},
                               activation_buffer(stem(weight), scores, x));
  const BufferId weights =
      emit(OpKind::route, attrs, {logits, bias}, {.name = fresh("weights"), .shape = chosen},
           {{.name = fresh("chosen"), .shape = chosen, .dtype = DType::i32}});
  return {logits, weights, program_.instructions.back().writes[1]};
}

Builder::GroupedRows Builder::group_rows(BufferId experts, int64_t of) {
  const Shape shape = program_.at(experts).shape;
  const BufferId places = emit(OpKind::group_rows, {}, {experts},
                               {.name = fresh("places"), .shape = shape, .dtype = DType::i32},
                               {{.name = fresh("ends"), .shape = {of}, .dtype = DType::i32}});
  return {places, program_.instructions.back().writes[1]};
}

BufferId Builder::spread_rows(BufferId x, BufferId places) {
  const Shape shape{program_.at(places).shape.elements(), program_.at(x).shape[-1]};
  return emit(OpKind::spread_rows, {}, {x, places}, activation_buffer("spread", shape, x));
}

BufferId Builder::grouped_linear(BufferId x, BufferId weight, BufferId ends) {
  const BufferId values = unpacked(weight);
  const int64_t features = program_.at(values).shape[0] / program_.at(ends).shape.elements();
  return emit(OpKind::grouped_linear, {}, {x, values, ends},
              activation_buffer(stem(weight), {program_.at(x).shape[0], features}, x));
}

BufferId Builder::combine_rows(BufferId x, BufferId places, BufferId weights) {
  const Shape shape{program_.at(places).shape[0], program_.at(x).shape[-1]};
  return emit(OpKind::combine_rows, {}, {x, places, weights},
              activation_buffer("combined", shape, x));
}

}  // namespace dstrain
