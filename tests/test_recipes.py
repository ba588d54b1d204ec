"""The recipes for other people's trainers run as written, where their packages are installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import noalias

PAGE = Path(__file__).parents[1] / "docs" / "recipes.md"
BLOCK = re.compile(r"^```python notest\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _off_afterwards() -> Iterator[None]:
    yield
    noalias.disable()


def recipe(package: str) -> type:
    """The callback of the page's block that imports `package`."""
    pytest.importorskip(package, reason=f"the recipe needs {package}: pip install {package}")
    (block,) = (b for b in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if package in b)
    names: dict[str, object] = {"noalias": noalias, "__name__": "recipe"}
    exec(compile(block, str(PAGE), "exec"), names)
    callback = names["Cures"]
    assert isinstance(callback, type)
    return callback


class Net(torch.nn.Module):
    """(batch, steps, 8) -> (batch, steps, 1), a hidden base before an in-place operator."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = torch.nn.InstanceNorm1d(4)
        self.act = torch.nn.LeakyReLU(inplace=True)
        self.out = torch.nn.Linear(8, 1)
        self.cured: list[bool] = []

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        h = self.act(self.norm(x))
        self.cured.append(not noalias.graph.has_copy_slices(h))
        return self.out(h).square().mean()


def data() -> torch.Tensor:
    """Four samples of shape (4, 8), float32."""
    return torch.randn(4, 4, 8, generator=torch.Generator().manual_seed(1))


def test_hugging_face_trainer_trains_with_the_cures_and_gives_them_back(tmp_path: Path) -> None:
    callback = recipe("transformers")
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
    from transformers import Trainer, TrainingArguments

    class Model(Net):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.loss(x.requires_grad_())}

    def trained(callbacks: list[object]) -> Model:
        model = Model()
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=2,
            per_device_train_batch_size=2,
            learning_rate=0.1,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        samples = [{"x": sample} for sample in data()]
        Trainer(model, arguments, train_dataset=samples, callbacks=callbacks).train()
        return model

    cured, stock = trained([callback()]), trained([])
    assert cured.cured == [True, True]
    assert stock.cured == [False, False]
    assert torch.equal(cured.out.weight, stock.out.weight)
    assert noalias.status().active == ()


# Lightning's own warnings, about PyTorch and about advice of its own, are not this test's matter.
@pytest.mark.filterwarnings("ignore")
def test_lightning_trainer_trains_with_the_cures_and_gives_them_back(tmp_path: Path) -> None:
    callback = recipe("lightning")
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.net.loss(batch.requires_grad_())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def trained(callbacks: list[object]) -> Net:
        model = Model()
        trainer = lightning.Trainer(
            max_steps=2,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=callbacks,
            default_root_dir=tmp_path,
        )
        trainer.fit(model, torch.utils.data.DataLoader(data(), batch_size=2))
        return model.net

    cured, stock = trained([callback()]), trained([])
    assert cured.cured == [True, True]
    assert stock.cured == [False, False]
    assert torch.equal(cured.out.weight, stock.out.weight)
    assert noalias.status().active == ()
