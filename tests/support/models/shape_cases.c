#include "tests/support/models/shape_cases.h"

const struct shape_case shape_cases[] = {
    {"[6]", "[dense: {units: 5}, relu: {}, dense: {units: 4}, gelu: {}, dense: {units: 3}]", true},
    {"[2, 3, 2]", "[flatten: {}, dense: {units: 4, bias: false}, relu: {}, dense: {units: 2}]",
     true},
    /* a relu after, before, around a maxpool, with which it may be swapped */
    {"[6, 6, 1]",
     "[conv2d: {filters: 3, kernel: 3, padding: 1}, relu: {}, maxpool: {size: 2}, conv2d: {filters:"
     " 2, kernel: 2}, maxpool: {size: 2}, relu: {}, flatten: {}, dense: {units: 3}]",
     true},
    {"[5, 5, 2]",
     "[relu: {}, maxpool: {size: 3, stride: 2, padding: 1}, relu: {}, gelu: {}, relu: {}, maxpool:"
     " {size: 2}, flatten: {}, dense: {units: 3}]",
     true},
    {"[4, 4, 1]",
     "[conv2d: {filters: 2, kernel: 3}, batchnorm: {}, relu: {}, maxpool: {size: 2}, flatten: {},"
     " dense: {units: 3}]",
     false},
    /* what writes over its input, and what must not */
    {"[7]",
     "[dense: {units: 6}, dropout: {rate: 0.3}, relu: {}, dropout: {rate: 0.5}, gelu: {}, dropout:"
     " {}, dense: {units: 3}]",
     true},
    {"[7]",
     "[dropout: {rate: 0.2}, dense: {units: 5}, relu: {}, relu: {}, dropout: {rate: 0.4}, dropout:"
     " {rate: 0.1}, relu: {}, dense: {units: 4}]",
     true},
    {"[4, 3, 2]",
     "[batchnorm: {}, dropout: {}, conv2d: {filters: 3, kernel: 2}, batchnorm: {}, relu: {},"
     " dropout: {}, batchnorm: {}, flatten: {}, dropout: {}, relu: {}, dense: {units: 3}]",
     false},
    /* pools */
    {"[5, 4, 4]",
     "[groupnorm: {groups: 2}, silu: {}, leaky_relu: {}, flatten: {}, layernorm: {}, "
     "dense: {units: 3}]",
     true},
    {"[5, 4, 3]", "[gelu: {}, global_avgpool: {}, dense: {units: 3}]", true},
    {"[5, 4, 3]",
     "[conv2d: {filters: 4, kernel: 2}, relu: {}, global_avgpool: {}, flatten: {},"
     " relu: {}, dense: {units: 3}]",
     true},
    {"[5, 5, 2]",
     "[conv2d: {filters: 2, kernel: 2}, avgpool: {size: 2, stride: 1, padding: 1}, relu: {},"
     " avgpool: {size: 2}, flatten: {}, batchnorm: {}, dense: {units: 3}]",
     false},
    /* branches: beside each other, nested, the input itself, features */
    {"[4, 4, 2]",
     "[conv2d: {filters: 3, kernel: 3, padding: 1}, concat: {branches: [[], [relu: {}, conv2d:"
     " {filters: 2, kernel: 1}], [conv2d: {filters: 4, kernel: 3, padding: 1}, relu: {}]]}, relu:"
     " {}, global_avgpool: {}, dense: {units: 3}]",
     true},
    {"[4, 4, 2]",
     "[concat: {branches: [[conv2d: {filters: 2, kernel: 1}, batchnorm: {}], [residual: {body:"
     " [conv2d: {filters: 2, kernel: 1}], shortcut: []}, concat: {branches: [[gelu: {}], []]}]]},"
     " maxpool: {size: 2}, flatten: {}, dense: {units: 3}]",
     false},
    {"[5]",
     "[concat: {branches: [[dense: {units: 4}], [], [dense: {units: 2}, dropout: {}]]}, relu: {},"
     " dense: {units: 3}]",
     true},
    /* residuals: identity, with a shortcut, at the input, nested, one after the other */
    {"[4]", "[residual: {body: [dense: {units: 4}], shortcut: []}, dense: {units: 3}]", true},
    {"[4]",
     "[residual: {body: [relu: {}, dense: {units: 4}, relu: {}], shortcut: []}, relu: {},"
     " dense: {units: 3}]",
     true},
    {"[4, 4, 2]",
     "[conv2d: {filters: 3, kernel: 3, padding: 1}, relu: {}, residual: {body: [conv2d: {filters:"
     " 4, kernel: 3, padding: 1, stride: 2, bias: false}, batchnorm: {}, relu: {}, conv2d:"
     " {filters: 4, kernel: 3, padding: 1, bias: false}, batchnorm: {}], shortcut: [conv2d:"
     " {filters: 4, kernel: 1, stride: 2, bias: false}, batchnorm: {}]}, relu: {},"
     " global_avgpool: {}, dense: {units: 3}]",
     false},
    {"[5]",
     "[dense: {units: 4}, residual: {body: [batchnorm: {}, relu: {}, dense: {units: 4},"
     " residual: {body: [relu: {}, dense: {units: 4}], shortcut: [dense: {units: 4}]}], shortcut:"
     " []}, residual: {body: [dropout: {}, dense: {units: 4}], shortcut: [relu: {}]}, relu: {},"
     " dense: {units: 3}]",
     false},
    {"[4]",
     "[residual: {body: [residual: {body: [residual: {body: [dense: {units: 4}, gelu: {}],"
     " shortcut: []}], shortcut: []}, relu: {}], shortcut: [dense: {units: 4}, relu: {}]},"
     " residual: {body: [relu: {}], shortcut: []}, residual: {body: [gelu: {}, dropout: {}],"
     " shortcut: []}, dropout: {}, dense: {units: 2}]",
     true},
    {"[2, 2, 2]",
     "[residual: {body: [relu: {}], shortcut: [gelu: {}]}, residual: {body: [flatten: {},"
     " dense: {units: 3}], shortcut: [flatten: {}, dense: {units: 3}, relu: {}]}, relu: {},"
     " dense: {units: 2}]",
     true},
    {"[3, 2, 2]",
     "[conv2d: {filters: 2, kernel: 1}, residual: {body: [flatten: {}, relu: {}], shortcut:"
     " [flatten: {}, dropout: {}]}, residual: {body: [dropout: {}], shortcut: [batchnorm: {}]},"
     " relu: {}, dense: {units: 3}]",
     false},
    {"[4, 4, 2]",
     "[conv2d: {filters: 2, kernel: 3, padding: 1}, residual: {body: [relu: {}, conv2d: {filters:"
     " 2, kernel: 3, padding: 1}, relu: {}, residual: {body: [gelu: {}, conv2d: {filters: 2,"
     " kernel: 1}], shortcut: []}], shortcut: []}, relu: {}, residual: {body: [conv2d: {filters: 3,"
     " kernel: 2, stride: 2}], shortcut: [avgpool: {size: 2}, conv2d: {filters: 3, kernel: 1}]},"
     " dropout: {rate: 0.2}, global_avgpool: {}, dense: {units: 3}]",
     true},
    {"[6, 5, 1]",
     "[gelu: {}, conv2d: {filters: 2, kernel: 2}, relu: {}, maxpool: {size: 2, stride: 1}, conv2d:"
     " {filters: 3, kernel: 2, bias: false}, flatten: {}, relu: {}, dropout: {rate: 0.3}, dense:"
     " {units: 3}]",
     true},
    {"[4, 4, 1]",
     "[conv2d: {filters: 2, kernel: 1}, batchnorm: {}, residual: {body: [conv2d: {filters: 2,"
     " kernel: 3, padding: 1}], shortcut: []}, gelu: {}, conv2d: {filters: 2, kernel: 1},"
     " batchnorm: {}, residual: {body: [conv2d: {filters: 2, kernel: 1}, batchnorm: {}], shortcut:"
     " [conv2d: {filters: 2, kernel: 1}]}, gelu: {}, conv2d: {filters: 3, kernel: 2},"
     " global_avgpool: {}, dense: {units: 3}]",
     false},
    /* branches without parameters after the input: no gradient is needed */
    {"[3, 4, 1]",
     "[residual: {body: [relu: {}], shortcut: [conv2d: {filters: 1, kernel: 1}]}, residual: {body:"
     " [gelu: {}], shortcut: []}, flatten: {}, dense: {units: 3}]",
     true},
    {"[3, 3, 1]",
     "[conv2d: {filters: 2, kernel: 2}, batchnorm: {sync: true}, relu: {}, flatten: {}, dense:"
     " {units: 4}, batchnorm: {sync: true, eps: 0.01}, dense: {units: 3}]",
     false},
    /* bodies that end in batch norm, in such a residual, and in batch norm with its own relu */
    {"[3, 3, 2]",
     "[conv2d: {filters: 2, kernel: 1}, residual: {body: [batchnorm: {}, residual: {body: "
     "[batchnorm:"
     " {}], shortcut: [relu: {}, batchnorm: {}]}], shortcut: []}, residual: {body: [batchnorm: {},"
     " relu: {}], shortcut: []}, dropout: {}, global_avgpool: {}, dense: {units: 3}]",
     false},
    /* one gradient that comes back by both branches: their sum is a third */
    {"[3, 2, 2]",
     "[conv2d: {filters: 2, kernel: 1}, residual: {body: [flatten: {}], shortcut: [flatten: {}]},"
     " dense: {units: 3}]",
     true},
};

const size_t shape_case_count = sizeof(shape_cases) / sizeof(shape_cases[0]);
