"""LARS and LAMB as torch.optim.Optimizer, which PyTorch itself lacks: the update rules of timm's
Lars (trust_clip off) and of apex's LARC around SGD, and of apex's FusedLAMB without its clipping.
"""
import torch


def ratio(above, below):
    """above / below, and 1 where either of the two norms is 0."""
    return above / below if above > 0 and below > 0 else torch.ones_like(above)


class Lars(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum, weight_decay, trust_coefficient, eps):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay,
                                  "trust": trust_coefficient, "eps": eps, "fixed": False})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                decay, change = group["weight_decay"], p.grad
                if not group["fixed"]:
                    w, g = p.norm(), p.grad.norm()
                    local = ratio(group["trust"] * w, g + decay * w + group["eps"])
                    local = local if g > 0 else torch.ones_like(local)
                    change = (p.grad + decay * p) * local
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                v = state["momentum_buffer"].mul_(group["momentum"]).add_(change)
                p.sub_(group["lr"] * v)


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "fixed": False,
                                  "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state, (b1, b2) = self.state[p], group["betas"]
                if "exp_avg" not in state:
                    state.update(exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                t = float(state.get("step", 0)) + 1
                state["step"] = torch.tensor(t)
                m = state["exp_avg"].mul_(b1).add_(p.grad, alpha=1 - b1)
                v = state["exp_avg_sq"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                change = (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + group["eps"])
                if not group["fixed"]:
                    change = change + group["weight_decay"] * p
                    change = change * ratio(p.norm(), change.norm())
                p.sub_(group["lr"] * change)
