"""status.keras: which Keras the programs get, decided once a job (see tftraining_api/model/keras.py).

Pods are created only after the API server has answered that the status holds the decision. A definition of the resource
that is older than the operator drops it: the rule of the versions that made no decision then holds, and a condition
says so.
"""

from tftraining_api.model.keras import keras_of
from tftraining_operator.model.conditions import with_condition
from tftraining_operator.plan.context import Context, Draft

LEGACY_KERAS = "LegacyKeras"
DROPPED = (
    LEGACY_KERAS,
    "the cluster's definition of TFTrainingJob is older than the operator and drops status.keras, so tf.keras is "
    "tf_keras where that is installed, as in earlier versions: update the definition, then create the job again",
)


def decide_keras(context: Context, draft: Draft) -> Draft:
    """The draft with status.keras; where the definition drops that, the condition, before the first pod."""
    pods = context.observed.replicas
    draft = draft.with_status_fields(keras=keras_of(context.spec, context.job.status, [each.keras for each in pods]))
    if not context.observed.keras_dropped or pods:
        return draft
    return draft.with_fields(status=with_condition(draft.status, LEGACY_KERAS, "True", DROPPED, context.now))
