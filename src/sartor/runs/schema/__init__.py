"""What stands in the JSON files of a run, one class per file: `Run.load` reads them, `Run.save` writes them.

Fields are the files' keys. To change one, raise the class's `FORMAT` and let its older form still be read: give a new
field a default, a renamed one its older name (`formerly`).
"""

from sartor.runs.codec import RunFile
from sartor.runs.schema.audit import FEW as FEW
from sartor.runs.schema.audit import AuditFile as AuditFile
from sartor.runs.schema.audit import Findings as Findings
from sartor.runs.schema.audit import Group as Group
from sartor.runs.schema.audit import Member as Member
from sartor.runs.schema.budget import Compared as Compared
from sartor.runs.schema.budget import FrontierFile as FrontierFile
from sartor.runs.schema.budget import Input as Input
from sartor.runs.schema.budget import Measured as Measured
from sartor.runs.schema.budget import ModelFile as ModelFile
from sartor.runs.schema.budget import Normalisation as Normalisation
from sartor.runs.schema.budget import Output as Output
from sartor.runs.schema.budget import Preprocessing as Preprocessing
from sartor.runs.schema.budget import QuantisedFile as QuantisedFile
from sartor.runs.schema.budget import Slowed as Slowed
from sartor.runs.schema.budget import SolutionFile as SolutionFile
from sartor.runs.schema.budget import Solved as Solved
from sartor.runs.schema.budget import Spread as Spread
from sartor.runs.schema.budget import TimingSummary as TimingSummary
from sartor.runs.schema.budget import TrainingFile as TrainingFile
from sartor.runs.schema.budget import Verified as Verified
from sartor.runs.schema.budget import VerifyFile as VerifyFile
from sartor.runs.schema.budget import held as held
from sartor.runs.schema.certificate import Accuracy as Accuracy
from sartor.runs.schema.certificate import Certificate as Certificate
from sartor.runs.schema.certificate import Code as Code
from sartor.runs.schema.certificate import DataIdentity as DataIdentity
from sartor.runs.schema.certificate import Proof as Proof
from sartor.runs.schema.certificate import Signature as Signature
from sartor.runs.schema.certificate import Stage as Stage
from sartor.runs.schema.certificate import StagesFile as StagesFile
from sartor.runs.schema.comparison import CompareFile as CompareFile
from sartor.runs.schema.comparison import Contestant as Contestant
from sartor.runs.schema.compression import AccuracyChange as AccuracyChange
from sartor.runs.schema.compression import BaselineFile as BaselineFile
from sartor.runs.schema.compression import Change as Change
from sartor.runs.schema.compression import CompressionFile as CompressionFile
from sartor.runs.schema.compression import LayerRow as LayerRow
from sartor.runs.schema.compression import LayerSize as LayerSize
from sartor.runs.schema.compression import LayerTotal as LayerTotal
from sartor.runs.schema.compression import PruningRound as PruningRound
from sartor.runs.schema.compression import RoundsFile as RoundsFile
from sartor.runs.schema.compression import Totals as Totals
from sartor.runs.schema.compression import Width as Width
from sartor.runs.schema.evaluation import EvaluationFile as EvaluationFile
from sartor.runs.schema.evaluation import Int8EvaluationFile as Int8EvaluationFile
from sartor.runs.schema.evaluation import Mistake as Mistake
from sartor.runs.schema.evaluation import Reliability as Reliability
from sartor.runs.schema.exported import ExportedForm as ExportedForm
from sartor.runs.schema.exported import ExportFile as ExportFile
from sartor.runs.schema.origin import Ancestry as Ancestry
from sartor.runs.schema.origin import OriginFile as OriginFile
from sartor.runs.schema.origin import Started as Started
from sartor.runs.schema.origin import ancestry as ancestry
from sartor.runs.schema.search import Calibration as Calibration
from sartor.runs.schema.search import Correction as Correction
from sartor.runs.schema.search import Environment as Environment
from sartor.runs.schema.search import Estimate as Estimate
from sartor.runs.schema.search import Facts as Facts
from sartor.runs.schema.search import Gauged as Gauged
from sartor.runs.schema.search import GroupState as GroupState
from sartor.runs.schema.search import HeldOut as HeldOut
from sartor.runs.schema.search import Mixture as Mixture
from sartor.runs.schema.search import MixtureEpoch as MixtureEpoch
from sartor.runs.schema.search import MixtureGroup as MixtureGroup
from sartor.runs.schema.search import Pace as Pace
from sartor.runs.schema.search import Posterior as Posterior
from sartor.runs.schema.search import Quality as Quality
from sartor.runs.schema.search import Removal as Removal
from sartor.runs.schema.search import Rule as Rule
from sartor.runs.schema.search import ScoreFile as ScoreFile
from sartor.runs.schema.search import Skipped as Skipped
from sartor.runs.schema.search import SplitsFile as SplitsFile
from sartor.runs.schema.search import Switches as Switches
from sartor.runs.schema.search import SwitchRound as SwitchRound
from sartor.runs.schema.search import TableNotes as TableNotes
from sartor.runs.schema.search import Trial as Trial
from sartor.runs.schema.search import TrialsFile as TrialsFile
from sartor.runs.schema.shapes import Device as Device
from sartor.runs.schema.shapes import Epoch as Epoch
from sartor.runs.schema.shapes import Floats as Floats
from sartor.runs.schema.shapes import Ints as Ints

_KINDS: list[type[RunFile]] = [*RunFile.__subclasses__(), Int8EvaluationFile]
FILES = {kind.NAME: kind for kind in _KINDS}
