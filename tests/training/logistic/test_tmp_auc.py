from __future__ import annotations
from typing import Any
import numpy as np, pytest, time
from vfl_node.data.design import LinearEncoder
from vfl_node.metrics import auc
from vfl_node.privacy.attacks.residuals import Round, scores
from vfl_node.training.logistic.flow import Seat
from vfl_node.training.logistic import agreement

def test_x(attempt: Any, shared: Any, logistic: Any, monkeypatch: Any) -> None:
    gradients = []
    own_gradient = Seat.own_gradient
    async def spying(seat, step, positions, residuals, fraction):
        gradient = await own_gradient(seat, step, positions, residuals, fraction)
        gradients.append(Round(positions, gradient[:, 0]))
        return gradient
    monkeypatch.setattr(Seat, "own_gradient", spying)
    def told(rows: int, lab: int, n=3, **given: Any):
        t=time.process_time(); found = []
        for seed in range(n):
            over = shared(rows, rows // 2, population=rows, clinic=4, lab=lab, seed=seed)
            gradients.clear()
            attempt(logistic(learning_rate=0.3, **given), seeds=(bytes([seed]) * 32, bytes([seed + 9]) * 32))(over)
            design = LinearEncoder.fit(over.lab, "standard").transform(over.lab)
            found.append(auc(over.genuine, scores(design.values[over.lab_view.rows], gradients)))
        print(rows, lab, given, np.round(found,3), np.mean(found), time.process_time()-t)
    told(400, 8, n=6, iterations=20)
    told(400, 20, iterations=20)
    told(400, 50, iterations=10)
    told(300, 60, iterations=10)
    told(200, 48, iterations=10)
    told(400, 4, iterations=300,batch_size=32)
    told(400, 8, iterations=150,batch_size=50)
    monkeypatch.setattr(agreement, "LEAST", 0)
    told(400, 8, iterations=200, batch_size=16)
    told(100, 40, iterations=10)
