// The classes of values that codecs send in another form, and the two sums of squares that each has:
//   weights, gradients, sums  quantized: gathered parameters; a rank's gradients; in two hops, the sums of groups. What is
//                             lost, and the values.
//   kFactorClass              low-rank factors (power_sgd()): a rank's gradients and the error of the step before. What
//                             the factors hold, and the values.
//   kSignClass, kSignSumClass signs: a rank's values and the error of the step before; in the second hop their sums. What
//                             is lost, and what is left, which is orthogonal to it.
#pragma once

#include <string>
#include <string_view>

namespace dstrain {

inline constexpr std::string_view kFactorClass = "factors", kSignClass = "signs",
                                  kSignSumClass = "sign_sums";
inline constexpr std::string_view kCodecClasses[] = {"weights",    "gradients", "sums",
                                                     kFactorClass, kSignClass,  kSignSumClass};
// Returns the name of the buffer that has the sums of a class: f64 (units, 2).
inline std::string codec_error_name(std::string_view of) {
  return "codec_error:" + std::string(of);
}

}  // namespace dstrain
